#pragma once

#include <future>
#include <memory>
#include <optional>

#include "weft/checkpoint/checkpoint.h"
#include "weft/checkpoint/save_checkpoint.h"
#include "weft/comm/world.h"
#include "weft/data/conversations/conversation_sets.h"
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
    bool goes_on = false;                              ///< with the checkpoint's samples; else its model is enough
    SampleCosts costs = {};                            ///< for plans that balance samples
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

  /// What was packed into rows and how full they are; empty where nothing was.
  const std::string& packing() const { return samples_.packing; }

  /// The next step. A loss or a gradient that is not finite is an error that names step and module; weights are then
  /// as before.
  Result<StepMetrics> step();
  /// This rank's part of the last step, by the clock of `last_start_ms`.
  const std::vector<TimelineEvent>& last_events() const { return last_events_; }
  double last_start_ms() const { return last_start_ms_; }
  /// What is to be written down of the last step: on rank 0, for some steps.
  const std::optional<StepRecord>& last_record() const { return last_record_; }
  /// Records that the last step could not use: the same on all ranks.
  const std::vector<SkippedSample>& last_skipped() const { return last_skipped_; }

  /// The loss over what the configuration evaluates: at most so many batches, of data of their own all. The same on
  /// all ranks.
  Result<EvalReport> evaluate(int64_t num_batches);

  /// What a checkpoint keeps beside this rank's state, and what stays beside it.
  struct SaveOptions {
    std::filesystem::path checkpoints;
    bool removes_leftovers = false;
    Json run = Json::object();            ///< what the run knows beside its configuration
    std::vector<int64_t> keep_also = {};  ///< steps whose checkpoints stay
  };
  /// Between two steps: takes a copy of what this rank is to write, which is then written beside the next steps.
  Result<std::unique_ptr<CheckpointSave>> begin_save(const SaveOptions& options);
  /// The same without a copy: it is on disk when this returns.
  Result<SavedCheckpoint> save(const SaveOptions& options);

  /// Goes on by another plan of the same model for the same ranks, between two steps and without touching a disk. Costs
  /// and the process's batches are those of the new plan. For a moment a rank holds its states of both.
  std::optional<Error> switch_plan(std::shared_ptr<const Plan> plan, const SampleCosts& costs,
                                   std::shared_ptr<SharedBatches> batches);

 private:
  TrainingSession(World& world, const Plan& plan, const TrainConfig& config)
      : world_(&world), plan_(&plan), config_(&config) {}

  /// A batch's share of this rank.
  struct Share {
    StepBatch batch;
    int64_t num_tokens = 0;   ///< of the whole batch
    int64_t num_targets = 0;  ///< of the whole batch
    int64_t num_records = 0;  ///< of the whole batch
    double flops = 0;         ///< of a training step over the whole batch
    double waited_ms = 0;     ///< here, until it was made
  };
  SaveRequest save_request(const SaveOptions& options) const;
  void use_batches(std::shared_ptr<SharedBatches> batches);
  std::optional<Error> make_samples();
  /// The number, in the run, of the first sample of a step of this plan.
  int64_t first_sample(int64_t step) const;
  /// Of the next step.
  double learning_rate() const;
  /// Of those that are trained on, made on another thread.
  std::shared_future<LocalBatch> batch_of_step(int64_t step, int64_t remade = 0) const;
  /// With the step where it is trained with.
  LocalBatch make_batch(const SampleSource& samples, int64_t first, std::optional<int64_t> trained_step = {}) const;
  /// The batch that all ranks agree on: made again until no rank finds a sample that it cannot decode.
  Result<Share> agreed_share(SampleSource& samples, const std::function<LocalBatch(int64_t remade)>& make);
  /// Nothing where ranks have left out samples, so that the batch is another one.
  Result<std::optional<Share>> share_batch(SampleSource& samples, const LocalBatch& local);
  /// Records of a step, and those that were skipped for it; an error where these are too many.
  std::optional<Error> count_samples(int64_t num_records);
  int64_t peak_bytes(const StepReport& report) const;
  StepReport guarded_step(const Share& share, double learning_rate, bool asks_device);
  std::optional<Error> record(const Share& share, const StepReport& report, const StepMetrics& metrics);
  std::vector<RankStep> gather_ranks(const RankStep& own);
  std::optional<double> peak_flops() const;

  World* world_;
  const Plan* plan_;
  std::shared_ptr<const Plan> own_plan_;  ///< of a switch
  const TrainConfig* config_;
  at::Device device_ = at::kCPU;
  std::optional<RankMemory> memory_;
  std::unique_ptr<TrainingRank> rank_;
  RunSamples samples_;
  SkipReport skip_report_;
  std::vector<SkippedSample> last_skipped_;
  SampleCosts costs_;
  int64_t step_ = 0;
  int64_t plan_step_ = 0;            ///< steps done before this plan
  int64_t plan_samples_ = 0;         ///< and samples
  int64_t first_batch_samples_ = 0;  ///< of the run's first step
  std::vector<TimelineEvent> last_events_;
  double last_start_ms_ = 0;
  std::optional<StepRecorder> recorder_;
  std::optional<StepRecord> last_record_;
  int64_t first_step_ = 0;  ///< steps done before this process, or before it changed its plan: the next warms up
  std::shared_ptr<SharedBatches> batches_;
  bool shares_batches_ = true;  ///< with other ranks of this process
  std::shared_future<LocalBatch> next_batch_;
};

}  // namespace weft
