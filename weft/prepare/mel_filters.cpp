#include "weft/prepare/mel_filters.h"

#include <algorithm>
#include <cmath>

namespace weft {
namespace {

constexpr double kHighestHz = 8000;
constexpr double kBendHz = 1000, kBendMel = 15;  // below, the scale is linear, above logarithmic

double mel_of(double hz) {
  return hz < kBendHz ? 3 * hz / 200 : kBendMel + std::log(hz / kBendHz) * (27 / std::log(6.4));
}

double hz_of(double mel) {
  return mel < kBendMel ? 200 * mel / 3 : kBendHz * std::exp(std::log(6.4) / 27 * (mel - kBendMel));
}

}  // namespace

MelFilters mel_filters(int64_t num_bins, int64_t num_mels) {
  std::vector<double> corners(static_cast<size_t>(num_mels + 2));
  for (size_t i = 0; i < corners.size(); ++i) {
    corners[i] = hz_of(mel_of(kHighestHz) * static_cast<double>(i) / static_cast<double>(num_mels + 1));
  }
  MelFilters mels;
  for (size_t m = 0; m < static_cast<size_t>(num_mels); ++m) {
    const double low = corners[m], peak = corners[m + 1], high = corners[m + 2];
    MelFilters::Filter filter;
    for (int64_t bin = 0; bin < num_bins; ++bin) {
      const double hz = kHighestHz * static_cast<double>(bin) / static_cast<double>(num_bins - 1);
      const double height = std::min((hz - low) / (peak - low), (high - hz) / (high - peak));
      if (height <= 0) continue;
      if (filter.weights.empty()) filter.first_bin = bin;
      filter.weights.push_back(static_cast<float>(height * 2 / (high - low)));
    }
    mels.filters.push_back(std::move(filter));
  }
  return mels;
}

}  // namespace weft
