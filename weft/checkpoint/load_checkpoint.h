#pragma once

#include <span>

#include "weft/checkpoint/checkpoint.h"

namespace weft {

/// Makes the optimizers of all ranks, and so the values of their parameters, what they were. With the plan that wrote
/// the checkpoint every rank gets back its own bits; with another one of the same model each takes its parts from the
/// files that have them. The bytes of every file that is read are checked. An error is the same on all ranks, and what
/// the parameters then hold is of no use. All ranks call it, between two steps.
std::optional<Error> load_checkpoint(const Checkpoint& checkpoint, Group& everyone,
                                     std::span<StageOptimizer* const> optimizers);

}  // namespace weft
