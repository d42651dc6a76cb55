#pragma once

#include "weft/cost/layer_walk.h"

namespace weft {

/// A block of a user's own program, as its runner goes through it: what each operator makes is kept until the operator
/// has had its backward. `x` is what the block before gave, if anything.
CountedTensor walk_program_block(const WalkedBlock& block, const CountedTensor& x, const WalkContext& context);

}  // namespace weft
