#pragma once

#include <cstdint>
#include <vector>

namespace weft {

/// Triangles on Slaney's mel scale over the bins of a spectrum, each of the same area: 0 to 8,000 Hz at a rate of 16
/// kHz.
struct MelFilters {
  struct Filter {
    int64_t first_bin = 0;
    std::vector<float> weights;
  };
  std::vector<Filter> filters;
};

MelFilters mel_filters(int64_t num_bins, int64_t num_mels);

}  // namespace weft
