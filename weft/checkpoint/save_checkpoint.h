#pragma once

#include <span>

#include "weft/checkpoint/checkpoint.h"

namespace weft {

struct SaveRequest {
  std::filesystem::path checkpoints;  ///< the run's folder of them, on a file system that all ranks share
  int64_t step = 0;
  const Plan& plan;
  Json run = Json::object();  ///< the trainer's own, an object
  int64_t keep_last = 0;      ///< how many are kept, this one included; 0: all
};

struct SavedCheckpoint {
  std::filesystem::path folder;
  int64_t num_bytes = 0;         ///< of this rank's file
  std::optional<Error> warning;  ///< it is saved, but an older one could not be removed
};

/// Writes what the optimizers of all ranks own, each rank a file, under a hidden name, and renames when all of it is on
/// disk. An error is the same on all ranks and leaves what was there before. All ranks of the plan call it between two
/// steps; the optimizers come in the same order in every run of the plan.
Result<SavedCheckpoint> save_checkpoint(const SaveRequest& request, Group& everyone,
                                        std::span<StageOptimizer* const> optimizers);

}  // namespace weft
