#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "weft/mesh/layout.h"

namespace weft {

// Ragged rows: samples with different numbers of rows (tokens), one after the other in one dim.

/// The rows of each part, where part p has the next samples_of_parts[p] samples. Together the parts have all samples.
std::vector<int64_t> rows_of_parts(std::span<const int64_t> rows_of_samples, std::span<const int64_t> samples_of_parts);

/// The layout of some consecutive indices of a dim alone, left where they are: each rank has those of its own that are
/// among them, often none.
Layout rows_layout(const Layout& layout, size_t dim, Range rows);

/// Where these indices are in what the rank at a position holds: indices of its own tensor.
Range local_rows(const Layout& layout, size_t dim, Range rows, int64_t position);

}  // namespace weft
