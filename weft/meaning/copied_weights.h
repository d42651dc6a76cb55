#pragma once

#include "weft/meaning/op_share.h"

namespace weft {

/// Of a weight, the elements whose gradients all tensor-parallel ranks sum: they have it whole, but each applies it to
/// its own part of the heads, of experts' gradients or, with sequence parallelism, of the rows.
inline int64_t summed_over_tp(const LocalWeight& weight, bool divides_rows) {
  return weight.is_whole && (weight.sees_divided || divides_rows) ? weight.elements : 0;
}

}  // namespace weft
