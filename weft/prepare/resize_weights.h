#pragma once

#include <cstdint>
#include <vector>

namespace weft {

/// How one dimension of a picture is resized: every new pixel is a sum of old neighbours, with integer weights. The
/// weights are LibTorch's for uint8 (bicubic with antialiasing), digit for digit.
struct ResizeWeights {
  int64_t old_size = 0;
  int64_t new_size = 0;
  int precision_bits = 0;        ///< weights are scaled by two to this power
  std::vector<int32_t> first;    ///< of every new pixel, the first old one of its sum
  std::vector<int32_t> count;    ///< and their number
  std::vector<int32_t> weights;  ///< [new_size, stride]
  int64_t stride = 0;

  const int32_t* of(int64_t pixel) const { return weights.data() + pixel * stride; }
};

ResizeWeights bicubic_weights(int64_t old_size, int64_t new_size);

}  // namespace weft
