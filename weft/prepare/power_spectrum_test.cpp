#include "weft/prepare/power_spectrum.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <numbers>

#include <gtest/gtest.h>

#include "tests/support/prepare/drawn_media.h"

namespace weft {
namespace {

TEST(PowerSpectrum, IsThatOfTheDefinitionInEveryLane) {
  constexpr int64_t kSize = PowerSpectrum::kSize, kLanes = PowerSpectrum::kLanes;
  const std::vector<float> sound = drawn_sound(kSize * kLanes, "noise");
  PowerSpectrum spectrum;
  std::copy(sound.begin(), sound.end(), spectrum.samples());
  const float* power = spectrum.compute();
  for (int64_t lane = 0; lane < kLanes; ++lane) {
    for (int64_t k = 0; k < PowerSpectrum::kBins; ++k) {
      std::complex<double> sum = 0;
      for (int64_t n = 0; n < kSize; ++n) {
        const double angle = -2 * std::numbers::pi * static_cast<double>(n * k % kSize) / kSize;
        sum += std::polar(static_cast<double>(sound[static_cast<size_t>(n * kLanes + lane)]), angle);
      }
      ASSERT_NEAR(power[k * kLanes + lane], std::norm(sum), 1e-4 * (1 + std::norm(sum))) << k;
    }
  }
}

}  // namespace
}  // namespace weft
