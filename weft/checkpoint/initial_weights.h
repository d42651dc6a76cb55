#pragma once

#include <filesystem>
#include <span>

#include "weft/optim/stage_optimizer.h"
#include "weft/spec/model.h"
#include "weft/weights/weight_folder.h"

namespace weft {

/// Where the weights of adapters come from, which no model's folder has.
struct InitialAdapters {
  uint64_t seed = 0;             ///< of fresh ones
  std::filesystem::path folder;  ///< as PEFT saves them; empty: fresh ones
};

/// Begins a run with the weights of a Hugging Face folder: fills what the optimizers own, in the precision of their
/// master weights, and makes it the values of all ranks' parameters; moments are zero and no update is done. Every rank
/// reads of the files what it owns. An error is the same on all ranks. All ranks call it.
std::optional<Error> load_initial_weights(const WeightFolder& folder, const Model& model, Group& everyone,
                                          std::span<StageOptimizer* const> optimizers,
                                          const InitialAdapters& adapters = {});

/// Fills adapters alone, where a run begins with fresh weights but not with fresh adapters.
std::optional<Error> load_initial_adapters(const std::filesystem::path& folder, const Model& model, Group& everyone,
                                           std::span<StageOptimizer* const> optimizers);

}  // namespace weft
