#include "weft/prepare/log_mel.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numbers>

#include "weft/base/check.h"
#include "weft/prepare/power_spectrum.h"
#include "weft/prepare/wide_vectors.h"

namespace weft {
namespace {

constexpr int64_t kWide = PowerSpectrum::kLanes;
constexpr int64_t kWindow = MelRules::kWindow;
static_assert(kWindow == PowerSpectrum::kSize);
constexpr float kFloor = 1e-10F;
constexpr float kFloorLog = -10;

/// log10 of a normal number, to the last digits or so: x = m 2^e with m of [sqrt(1/2), sqrt(2)), and with
/// s = (m - 1) / (m + 1), ln m = 2 artanh s. In loops of it there is no call, as of the library's.
inline float common_logarithm(float x) {
  constexpr uint32_t kRootOfHalf = 0x3f3504f3;
  const auto bits = std::bit_cast<uint32_t>(x);
  const auto exponent = static_cast<int32_t>(bits - kRootOfHalf) >> 23;
  const float m = std::bit_cast<float>(bits - (static_cast<uint32_t>(exponent) << 23));
  const float s = (m - 1) / (m + 1);
  const float z = s * s;
  const float ln = 2 * (s + s * z * (1.0F / 3 + z * (1.0F / 5 + z * (1.0F / 7 + z * (1.0F / 9)))));
  return static_cast<float>(exponent) * std::numbers::log10e_v<float> * std::numbers::ln2_v<float> +
         ln * std::numbers::log10e_v<float>;
}

/// Energies of all filters on the spectra of all lanes, at least kFloor: [mel, lane].
WEFT_WIDE_PREPARE void filter_lanes(const MelFilters& mels, const float* power, float* to) {
  for (const MelFilters::Filter& filter : mels.filters) {
    Floats8 sum{};
    const float* from = power + filter.first_bin * kWide;
    for (const float weight : filter.weights) {
      Floats8 bin;
      std::memcpy(&bin, from, sizeof bin);
      sum += weight * bin;
      from += kWide;
    }
    // Here, and not with the logarithm: of a constant, the compiler knows it, and makes a branch where none should be.
    const Floats8 floor = Floats8{} + kFloor;
    sum = sum > floor ? sum : floor;
    std::memcpy(to, &sum, sizeof sum);
    to += kWide;
  }
}

WEFT_WIDE_PREPARE void take_logarithms(float* values, int64_t count) {
  for (int64_t i = 0; i < count; ++i) values[i] = common_logarithm(values[i]);
}

/// The largest value of each lane.
WEFT_WIDE_PREPARE void find_largest(const float* values, int64_t count, float* to) {
  Floats8 largest{}, next;
  std::memcpy(&largest, values, sizeof largest);
  for (int64_t i = kWide; i < count; i += kWide) {
    std::memcpy(&next, values + i, sizeof next);
    largest = next > largest ? next : largest;
  }
  std::memcpy(to, &largest, sizeof largest);
}

WEFT_WIDE_PREPARE void finish(std::span<float> values, float lowest) {
  for (float& value : values) value = (std::max(value, lowest) + 4) / 4;
}

/// A clip as its frames see it: mirrored at its begin, silent after its end, mirrored where the chunk ends.
struct PaddedClip {
  std::span<const float> samples;
  int64_t chunk = 0;

  float at(int64_t i) const {
    if (i < 0) i = -i;
    if (i >= chunk) i = 2 * (chunk - 1) - i;
    return i < std::ssize(samples) ? samples[static_cast<size_t>(i)] : 0;
  }
};

/// Windows of frames first, first + 1, ... as [sample, lane].
void cut_windows(const PaddedClip& clip, const std::vector<float>& window, int64_t first, float* to) {
  for (int64_t lane = 0; lane < kWide; ++lane) {
    const int64_t begin = (first + lane) * MelRules::kHop - kWindow / 2;
    if (begin >= 0 && begin + kWindow <= std::ssize(clip.samples)) {
      const float* from = clip.samples.data() + begin;
      for (int64_t i = 0; i < kWindow; ++i) to[i * kWide + lane] = from[i] * window[static_cast<size_t>(i)];
    } else {
      for (int64_t i = 0; i < kWindow; ++i) {
        to[i * kWide + lane] =
            begin + i < clip.chunk + kWindow ? clip.at(begin + i) * window[static_cast<size_t>(i)] : 0;
      }
    }
  }
}

}  // namespace

LogMel::LogMel(const MelRules& rules) : rules_(rules), filters_(mel_filters(PowerSpectrum::kBins, rules.num_mels)) {
  for (int64_t i = 0; i < kWindow; ++i) {
    const double angle = 2 * std::numbers::pi * static_cast<double>(i) / static_cast<double>(kWindow);
    window_.push_back(static_cast<float>(0.5 - 0.5 * std::cos(angle)));
  }
}

std::vector<float> LogMel::features(std::span<const float> samples) const {
  const int64_t num_frames = rules_.num_frames(std::ssize(samples));
  const PaddedClip clip{samples.first(std::min(samples.size(), static_cast<size_t>(rules_.max_samples()))),
                        rules_.max_samples()};
  // Frames that begin after the last one still see a little of the clip, and may be the loudest.
  const int64_t total_frames = rules_.max_samples() / MelRules::kHop;
  const int64_t heard_frames =
      std::min(total_frames, (std::ssize(clip.samples) + kWindow / 2 + MelRules::kHop - 1) / MelRules::kHop);
  std::vector<float> values(static_cast<size_t>(rules_.num_mels * num_frames));
  PowerSpectrum spectrum;
  std::vector<float> logs(static_cast<size_t>(rules_.num_mels * kWide));
  float loudest = kFloorLog;
  for (int64_t first = 0; first < heard_frames; first += kWide) {
    cut_windows(clip, window_, first, spectrum.samples());
    const float* power = spectrum.compute();
    filter_lanes(filters_, power, logs.data());
    take_logarithms(logs.data(), std::ssize(logs));
    const int64_t heard = std::min(kWide, heard_frames - first),
                  kept = std::clamp(num_frames - first, int64_t{0}, kWide);
    float largest[kWide];
    find_largest(logs.data(), std::ssize(logs), largest);
    loudest = std::max(loudest, *std::max_element(largest, largest + heard));
    for (int64_t m = 0; m < rules_.num_mels; ++m) {
      std::copy_n(logs.data() + m * kWide, kept, values.data() + m * num_frames + first);
    }
  }
  finish(values, loudest - 8);
  return values;
}

}  // namespace weft
