#pragma once

#include <span>

#include "weft/optim/stage_optimizer.h"
#include "weft/spec/model.h"
#include "weft/weights/weight_folder.h"

namespace weft {

/// Begins a run with the weights of a Hugging Face folder: fills what the optimizers own, in the precision of their
/// master weights, and makes it the values of all ranks' parameters; moments are zero and no update is done. Every rank
/// reads of the files what it owns. An error is the same on all ranks. All ranks call it.
std::optional<Error> load_initial_weights(const WeightFolder& folder, const Model& model, Group& everyone,
                                          std::span<StageOptimizer* const> optimizers);

}  // namespace weft
