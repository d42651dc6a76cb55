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

}  // namespace weft
