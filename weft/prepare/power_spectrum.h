#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace weft {

/// Power spectra of eight windows of 400 samples at a time, one in each lane of a vector.
class PowerSpectrum {
 public:
  static constexpr int64_t kSize = 400;
  static constexpr int64_t kBins = kSize / 2 + 1;
  static constexpr int64_t kLanes = 8;

  PowerSpectrum();

  /// [kSize, kLanes], to be filled by the caller.
  float* samples() { return samples_.data(); }
  /// [kBins, kLanes]: |X(k)|^2 of what was filled in, which is destroyed.
  const float* compute();

 private:
  struct Stage {
    int radix = 0;
    int64_t groups = 0;          ///< butterflies with a factor of their own
    int64_t stride = 0;          ///< butterflies that share it
    std::vector<float> factors;  ///< [groups, radix - 1, 2]
  };

  std::vector<Stage> stages_;
  std::vector<float> ends_;  ///< [kSize / 2 + 1, 2]: what joins even and odd samples
  std::vector<float> samples_;
  std::vector<float> other_;
  std::vector<float> power_;
};

}  // namespace weft
