#pragma once

#include "weft/shard/shard_solver.h"

namespace weft {

/// A strategy that goes out from the operators with the fewest options, which are those that are pinned: each operator
/// takes, next to neighbours that are decided, the option with which it and the values between them cost least. Layers
/// of a repeat are alike.
ShardAssignment propagate(const ShardProblem& problem);

}  // namespace weft
