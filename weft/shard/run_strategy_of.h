#pragma once

#include "weft/program/divide_repeats.h"
#include "weft/program/run_strategy.h"
#include "weft/shard/shard_solver.h"

namespace weft {

/// A strategy that was found, as it runs: of the unrolled program (divide_repeats.h). Weights are held as they are
/// used, whole where they are not cut.
RunStrategy run_strategy_of(const ShardProblem& problem, const ShardAssignment& assignment,
                            const DividedProgram& unrolled);

}  // namespace weft
