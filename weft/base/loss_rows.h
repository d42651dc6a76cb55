#pragma once

#include <algorithm>
#include <cstdint>

namespace weft {

/// How many rows of logits a loss looks at together: what is made of them in passing must not need as much memory as
/// the logits. Processors want pieces that a cache can hold, other devices large ones.
inline int64_t rows_of_loss(int64_t classes, bool is_cpu) {
  const int64_t elements = is_cpu ? int64_t{128} << 10 : int64_t{64} << 20;
  return std::max<int64_t>(1, elements / std::max<int64_t>(1, classes));
}

/// How many rows have their logits at a time where these are not kept: enough for a product to be as fast as that of
/// all.
inline int64_t rows_of_logits(int64_t classes, bool is_cpu) {
  const int64_t elements = is_cpu ? int64_t{16} << 10 : int64_t{512} << 20;
  const int64_t least = is_cpu ? 64 : 1024;
  return std::max(least, elements / std::max<int64_t>(1, classes));
}

}  // namespace weft
