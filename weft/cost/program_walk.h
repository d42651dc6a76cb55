#pragma once

#include "weft/cost/layer_walk.h"

namespace weft {

/// What a program computes of a block, as its runner goes through it: what arrives, what operators make and keep
/// (program_operator_walk.h), and the same going back. `x` is what the block before gave, if anything.
CountedTensor walk_program_block(const WalkedBlock& block, const CountedTensor& x, const WalkContext& context);

}  // namespace weft
