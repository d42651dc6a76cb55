#pragma once

#include <filesystem>
#include <memory>
#include <optional>

#include "weft/checkpoint/checkpoint.h"
#include "weft/comm/world.h"
#include "weft/engine/run_claim.h"
#include "weft/engine/run_folder.h"
#include "weft/engine/train_config.h"
#include "weft/engine/trainer.h"

namespace weft {

/// Where a run starts: the same on all ranks.
struct RunStart {
  RunFolder folder;
  std::optional<Checkpoint> checkpoint;  ///< nothing: at step 0
  bool is_own = false;                   ///< the folder holds this run already, which goes on in it
  std::shared_ptr<RunClaim> claim;       ///< on rank 0
};

/// Whether a folder has the files of a Hugging Face model.
bool is_model_folder(const std::filesystem::path& folder);

/// A checkpoint by its own folder or by that of its run; the newest of a run.
Result<std::filesystem::path> find_checkpoint(const std::filesystem::path& given);

/// The folder of the run that a checkpoint is of, by where it lies; empty where it lies alone.
std::filesystem::path run_of(const std::filesystem::path& checkpoint);

/// The same on all ranks: one looks, so that all see the same even while the folders change. `way` is what to do with
/// another one that is good.
Result<Checkpoint> read_checkpoint_on_ranks(World& world, const std::filesystem::path& given, std::string_view way);

/// Finds out where to start and where to write, claims the folder, and refuses what would write over something. A run
/// that is to go on and has no checkpoint yet begins again. Where checkpoints are to be saved, all ranks must see the
/// folder.
Result<RunStart> find_start(World& world, const Plan& plan, const TrainConfig& config, const TrainOptions& options);

/// Rank 0 makes the folder ready to be written.
std::optional<Error> open_run(World& world, const RunStart& start, const Plan& plan, const TrainConfig& config);

}  // namespace weft
