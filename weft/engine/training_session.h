#pragma once

#include <future>
#include <memory>
#include <optional>

#include "weft/checkpoint/checkpoint.h"
#include "weft/checkpoint/save_checkpoint.h"
#include "weft/comm/world.h"
#include "weft/data/synthetic.h"
#include "weft/engine/rank_memory.h"
#include "weft/engine/shared_batches.h"
#include "weft/engine/step_recorder.h"
#include "weft/engine/train_config.h"
#include "weft/engine/train_request.h"
#include "weft/meaning/batch_assignment.h"
#include "weft/pipeline/training_rank.h"

namespace weft {

/// One rank of a run: its part of the model, its share of the samples, and where it stands. All ranks make one and call
/// it alike; errors are the same on all of them.
class TrainingSession {
 public:
  /// Where a run begins.
  struct Start {
    const std::optional<Checkpoint>& checkpoint;
    bool goes_on = false;    ///< with the checkpoint's plan and samples; else its model is enough
    SampleCosts costs = {};  ///< for plans that balance samples
    std::shared_ptr<SharedBatches> batches = nullptr;  ///< of this process's ranks; null: this one makes its own
    bool records = false;                              ///< some steps, for who holds them against predictions
    std::vector<RankNeed> memory = {};  ///< by rank, compared with what there is; empty: nothing is compared
  };
  /// Begins with fresh weights, with the configuration's, or where a checkpoint ended. World, plan and configuration
  /// must outlive it.
  static Result<std::unique_ptr<TrainingSession>> create(World& world, const Plan& plan, const TrainConfig& config,
                                                         const Start& start);

  ~TrainingSession();
  TrainingSession(const TrainingSession&) = delete;
  TrainingSession& operator=(const TrainingSession&) = delete;

  /// Steps done.
  int64_t num_steps() const { return step_; }

  /// The next step. A loss or a gradient that is not finite is an error that names step and module; weights are then
  /// as before.
  Result<StepMetrics> step();
  /// This rank's part of the last step, by the clock of `last_start_ms`.
  const std::vector<TimelineEvent>& last_events() const { return last_events_; }
  double last_start_ms() const { return last_start_ms_; }
  /// What is to be written down of the last step: on rank 0, for some steps.
  const std::optional<StepRecord>& last_record() const { return last_record_; }

  /// The loss over batches that training does not see.
  Result<EvalReport> evaluate(int64_t num_batches);

  /// Between two steps.
  Result<SavedCheckpoint> save(const std::filesystem::path& checkpoints);

 private:
  TrainingSession(World& world, const Plan& plan, const TrainConfig& config)
      : world_(&world), plan_(&plan), config_(&config) {}

  /// A batch's share of this rank.
  struct Share {
    StepBatch batch;
    int64_t num_tokens = 0;   ///< of the whole batch
    int64_t num_targets = 0;  ///< of the whole batch
    double flops = 0;         ///< of a training step over the whole batch
  };
  LocalBatch make_batch(const SyntheticSamples& samples, int64_t batch) const;
  /// Of those that are trained on, made on another thread.
  std::shared_future<LocalBatch> batch_of_step(int64_t step) const;
  BatchAssignment assign(const SyntheticSamples& samples, int64_t batch) const;
  std::optional<Error> make_microbatches(const SyntheticSamples& samples, int64_t batch, LocalBatch& local) const;
  std::optional<Error> make_macro_batches(const SyntheticSamples& samples, int64_t batch, StepBatch& made) const;
  Result<Share> share_batch(const LocalBatch& local);
  int64_t peak_bytes(const StepReport& report) const;
  StepReport guarded_step(const Share& share, double learning_rate, bool asks_device);
  void record(const Share& share, const StepReport& report, const StepMetrics& metrics);
  std::vector<RankStep> gather_ranks(const RankStep& own);
  std::optional<double> peak_flops() const;

  World* world_;
  const Plan* plan_;
  const TrainConfig* config_;
  at::Device device_ = at::kCPU;
  std::optional<RankMemory> memory_;
  std::unique_ptr<TrainingRank> rank_;
  std::optional<SyntheticSamples> samples_;
  std::optional<SyntheticSamples> unseen_samples_;
  SampleCosts costs_;
  int64_t step_ = 0;
  std::vector<TimelineEvent> last_events_;
  double last_start_ms_ = 0;
  std::optional<StepRecorder> recorder_;
  std::optional<StepRecord> last_record_;
  int64_t first_step_ = 0;  ///< steps done before this process
  std::shared_ptr<SharedBatches> batches_;
  std::shared_future<LocalBatch> next_batch_;
};

}  // namespace weft
