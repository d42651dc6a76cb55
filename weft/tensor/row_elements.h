#pragma once

#include <cstdint>
#include <vector>

namespace weft {

/// Of rows of a width, by rank.
inline std::vector<int64_t> elements_of_rows(std::vector<int64_t> num_rows, int64_t width) {
  for (int64_t& count : num_rows) count *= width;
  return num_rows;
}

}  // namespace weft
