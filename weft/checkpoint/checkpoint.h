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
  int64_t chunk_bytes = 0;       ///< of every chunk but the last; files of version 1 are one chunk
  std::vector<uint32_t> chunks;  ///< CRC-32C of each
  std::vector<StoredPart> parts;
};

/// All of a checkpoint but its tensors.
struct Checkpoint {
  std::filesystem::path folder;
  int64_t step = 0;                 ///< of the run, as the trainer counts
  int64_t updates = 0;              ///< that the optimizers have done; fewer where gradients were not finite
  int64_t samples = 0;              ///< that were trained on
  int64_t first_batch_samples = 0;  ///< the global batch that the run began with
  Plan plan;
  Json run;  ///< the trainer's own
  std::vector<CheckpointFile> files;
};

/// The version that this program writes, and the newest that it reads.
inline constexpr int64_t kCheckpointVersion = 2;
/// Of a newer version: such a checkpoint is not damaged.
inline constexpr const char* kNewerVersionAdvice = "Use the Weft that wrote it, or a newer one.";

/// A run's steps end here.
inline constexpr int64_t kMostSteps = 1'000'000'000;

/// What has a checksum of its own in files of this version.
inline constexpr int64_t kChunkBytes = int64_t{256} << 10;

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

/// Reads every byte of a checkpoint's files and compares it with its checksum.
std::optional<Error> verify_checkpoint(const Checkpoint& checkpoint);

/// The newest checkpoint beside this one of which every byte is good, for who has found that this one is not.
std::optional<std::filesystem::path> good_checkpoint_beside(const std::filesystem::path& folder);

}  // namespace weft
