#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "weft/checkpoint/stored_part.h"
#include "weft/plan/plan.h"

namespace weft {

/// What one rank has written.
struct CheckpointFile {
  int64_t rank = 0;
  int64_t num_bytes = 0;
  uint32_t checksum = 0;  ///< CRC-32C of all bytes
  std::vector<StoredPart> parts;
};

/// All of a checkpoint but its tensors.
struct Checkpoint {
  std::filesystem::path folder;
  int64_t step = 0;     ///< of the run, as the trainer counts
  int64_t updates = 0;  ///< that the optimizers have done; fewer where gradients were not finite
  Plan plan;
  Json run;  ///< the trainer's own
  std::vector<CheckpointFile> files;
};

/// The version that this program writes, and the newest that it reads.
inline constexpr int64_t kCheckpointVersion = 1;

/// What the names of checkpoints begin with.
inline constexpr const char* kCheckpointPrefix = "step-";

/// "step-00000100" and "rank-00003.safetensors".
std::string checkpoint_name(int64_t step);
std::string checkpoint_file_name(int64_t rank);

/// The steps of the checkpoints in a run's folder, rising; none where there is no such folder.
Result<std::vector<int64_t>> list_checkpoints(const std::filesystem::path& checkpoints);
/// The one of the highest step, if there is any.
Result<std::optional<std::filesystem::path>> newest_checkpoint(const std::filesystem::path& checkpoints);

/// Reads what a checkpoint says of itself, and checks that its files are there and have their sizes. Their bytes are
/// checked when they are loaded.
Result<Checkpoint> read_checkpoint(const std::filesystem::path& folder);

/// Whether going on with this plan is to compute what the run would have computed without an end, as an error that says
/// where it differs. What is about the prediction and about time and memory alone may differ.
std::optional<Error> check_same_plan(const Checkpoint& checkpoint, const Plan& plan);

}  // namespace weft
