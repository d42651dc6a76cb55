#pragma once

#include <span>

#include "weft/checkpoint/checkpoint.h"

namespace weft {

/// What loading or moving took, on one rank.
struct MovedBytes {
  int64_t read = 0;      ///< of files, whole chunks
  int64_t wanted = 0;    ///< by this rank, as files have them
  int64_t received = 0;  ///< from other ranks
};

/// Makes the optimizers of all ranks, and so the values of their parameters, what they were. With the plan that wrote
/// the checkpoint every rank gets back its own bits; with another one of the same model each part is read by one rank
/// and sent to those that want it. Weights that were frozen begin with moments of no updates. Every byte that is used
/// is checked. An error is the same on all ranks, and what the parameters then hold is of no use. All ranks call it,
/// between two steps.
std::optional<Error> load_checkpoint(const Checkpoint& checkpoint, Group& everyone,
                                     std::span<StageOptimizer* const> optimizers, MovedBytes* bytes = nullptr);

/// Brings what some optimizers hold into others, of another plan for the same ranks, without touching a disk: every
/// rank sends what others want and do not have, once. All ranks call it, between two steps; the old ones must have
/// nothing on its way. The error names a weight that only one side has.
std::optional<Error> move_states(Group& everyone, std::span<StageOptimizer* const> from,
                                 std::span<StageOptimizer* const> to, MovedBytes* bytes = nullptr);

}  // namespace weft
