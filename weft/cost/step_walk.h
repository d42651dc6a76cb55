#pragma once

#include <span>

#include "weft/cost/walk_context.h"
#include "weft/mesh/step.h"

namespace weft {

/// How a tensor of the rank at a position goes through steps between layouts.
struct SteppedTensor {
  int64_t position = 0;
  int64_t element_bytes = 4;
  bool may_overwrite = false;  ///< sums may be made where it lies
};
/// The rank's part of it afterwards, counted as tensor/rank_steps makes it: `x` itself where nothing is made.
CountedTensor walk_steps(std::span<const Step> steps, const CountedTensor& x, const SteppedTensor& how,
                         const WalkContext& context);

}  // namespace weft
