#pragma once

#include <string>

#include "weft/shard/shard_solver.h"

namespace weft {

/// A found strategy as a file that reads back to it. Layers that differ are parts of their repeat; fails where the
/// program cannot be divided so (divide_repeats).
Result<std::string> strategy_text(const ShardProblem& problem, const ShardAssignment& assignment);

}  // namespace weft
