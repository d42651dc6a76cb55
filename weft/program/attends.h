#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

namespace weft {

/// Whether a part of packed heads, [..., rows, heads], has any heads, whatever rows there are.
inline bool has_heads(std::span<const int64_t> part) {
  const auto is_empty = [](int64_t size) { return size == 0; };
  return part.back() > 0 && std::none_of(part.begin(), part.end() - 2, is_empty);
}

/// Whether a rank with such a part of what attention reads attends. One that does not makes rows of nothing, in which
/// autograd's graph ends: nothing before them is kept for the way back. Ranks that share rows out attend together, also
/// those without any.
inline bool attends(std::span<const int64_t> part, bool shares_rows) {
  return has_heads(part) && (shares_rows || part[part.size() - 2] > 0);
}

}  // namespace weft
