#pragma once

#include <future>
#include <memory>
#include <span>

#include "weft/checkpoint/checkpoint.h"

namespace weft {

struct SaveRequest {
  std::filesystem::path checkpoints;  ///< the run's folder of them, on a file system that all ranks share
  int64_t step = 0;
  int64_t samples = 0;              ///< trained on so far
  int64_t first_batch_samples = 1;  ///< the global batch that the run began with
  const Plan& plan;
  Json run = Json::object();            ///< the trainer's own, an object
  int64_t keep_last = 0;                ///< how many are kept, this one included; 0: all
  std::vector<int64_t> keep_also = {};  ///< steps whose checkpoints are kept beside them
  int64_t chunk_bytes = kChunkBytes;
  /// What runs that died have begun here goes. Not where another run may be writing here.
  bool removes_leftovers = true;
};

struct SavedCheckpoint {
  std::filesystem::path folder;
  int64_t num_bytes = 0;         ///< of this rank's file
  std::optional<Error> warning;  ///< it is saved, but an older one could not be removed
};

/// A checkpoint that is being saved while ranks go on: each has copied what it will write and writes it on a thread of
/// its own. Communication is left to the ranks' own threads, between two steps. All ranks make one and call it alike.
class CheckpointSave {
 public:
  /// Makes the folder and takes a copy of what the optimizers own; they may change when this returns. Ranks that own
  /// the same share the writing. An error is the same on all ranks and leaves what was there before. All ranks of the
  /// plan call it between two steps; the optimizers come in the same order in every run of the plan.
  static Result<std::unique_ptr<CheckpointSave>> begin(const SaveRequest& request, Group& everyone,
                                                       std::span<StageOptimizer* const> optimizers);

  ~CheckpointSave();
  CheckpointSave(const CheckpointSave&) = delete;
  CheckpointSave& operator=(const CheckpointSave&) = delete;

  int64_t step() const { return step_; }
  /// What was saved, once it is on disk on all ranks; nothing yet before.
  Result<std::optional<SavedCheckpoint>> poll();
  /// Waits for it, as long as it takes.
  Result<SavedCheckpoint> finish();

 private:
  friend Result<SavedCheckpoint> save_checkpoint(const SaveRequest& request, Group& everyone,
                                                 std::span<StageOptimizer* const> optimizers);
  struct Content;
  /// What is known when rank 0 has ended it.
  struct Ending {
    std::optional<Error> error;
    std::optional<Error> warning;
  };

  explicit CheckpointSave(Group& everyone) : everyone_(&everyone) {}
  static Result<std::unique_ptr<CheckpointSave>> start(const SaveRequest& request, Group& everyone,
                                                       std::span<StageOptimizer* const> optimizers, bool copies);
  /// After all ranks have written: rank 0 writes down what there is.
  std::optional<Error> begin_ending();
  Result<SavedCheckpoint> end();
  Error given_up(Error error);

  Group* everyone_;
  int64_t step_ = 0;
  std::unique_ptr<Checkpoint> described_;  ///< but for the files
  std::filesystem::path checkpoints_;
  int64_t keep_last_ = 0;
  std::vector<int64_t> keep_also_;
  SavedCheckpoint saved_;
  std::shared_ptr<const Content> content_;
  std::future<Result<CheckpointFile>> writing_;  ///< nothing where this rank has nothing to write
  std::optional<std::future<Ending>> ending_;    ///< on rank 0
  bool is_ending_ = false;
  bool is_over_ = false;
};

/// The same at once: it is on disk when this returns.
Result<SavedCheckpoint> save_checkpoint(const SaveRequest& request, Group& everyone,
                                        std::span<StageOptimizer* const> optimizers);

}  // namespace weft
