#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "weft/comm/world.h"
#include "weft/meaning/routers.h"
#include "weft/pipeline/executor.h"
#include "weft/pipeline/expert_statistics.h"
#include "weft/pipeline/step_batch.h"
#include "weft/pipeline/trained_encoder.h"
#include "weft/pipeline/trained_module.h"
#include "weft/pipeline/training_settings.h"
#include "weft/schedule/step_metrics.h"

namespace weft {

/// What all ranks know after a step.
struct StepReport {
  double loss = 0;  ///< per target token of the whole batch
  /// What routers add to it for balanced loads: every layer's loss times the model's coefficient, the mean over
  /// microbatches and data-parallel ranks.
  double balance_loss = 0;
  double gradient_norm = 0;
  std::vector<std::pair<ModuleKind, double>> module_norms;  ///< of each module's gradients, in the model's order
  bool is_updated = false;            ///< not where the gradient is not finite: weights are then as before
  std::vector<TimelineEvent> events;  ///< this rank's
  std::optional<ExpertLoad> experts;  ///< of all ranks; nothing without routers
  ExpertRows expert_rows;             ///< of this rank: rows that chose each expert, by stage and router
  double waited_ms = 0;               ///< on this rank, see StepOutput
  std::string not_finite;             ///< where loss or gradient are not: the module in which that begins
  /// By stage and microbatch, of every router there: rows of this rank that chose each expert.
  RoutedRows routed_rows;
  std::vector<ActionMemory> memory;  ///< of each event, where this rank's thread counts its memory
};

/// One rank of a plan that trains: its stages, their optimizers, and the groups that they talk in. Every rank of the
/// plan's world makes one and calls it alike.
class TrainingRank {
 public:
  /// The error names every field of a plan that is not legal.
  static Result<std::unique_ptr<TrainingRank>> create(World& world, const Plan& plan, const TrainingSettings& settings);

  const ModelNumbers& numbers() const { return numbers_; }
  int64_t vocabulary() const { return vocabulary_; }
  /// What deals samples out, and which share of a module's this rank takes; nothing where the module is not here.
  const BatchShape& batch_shape() const { return batch_shape_; }
  std::optional<int64_t> data_parallel_rank(ModuleKind module) const;
  /// Which of so many ranks that share out a module's rows this is, where its first block is here: what it takes in.
  struct EntryShare {
    int64_t num_ranks = 1;
    int64_t rank = 0;
  };
  std::optional<EntryShare> entry_share(ModuleKind module) const;
  /// Of the llm, which must be here.
  int64_t data_parallel_rank() const { return data_parallel_rank(ModuleKind::kLlm).value(); }
  at::TensorOptions options() const { return options_; }
  std::vector<ParameterPtr> parameters() const;
  /// Of its stages, in the order of chunks, then of encoders; those of experts after.
  std::vector<StageOptimizer*> optimizers() const;

  /// Takes over values that were written into the parameters, on all ranks, after gather_values().
  void adopt_values();
  /// Makes parameters whole for reading, where ZeRO 3 divides them.
  void gather_values();

  /// By stage of this rank: the most that each of its optimizers held since the last step began, added up.
  std::vector<HeldElements> peak_elements() const;

  /// One step over this rank's share of a batch with so many target tokens on all ranks. A GPU is asked when it did
  /// what where `asks_device`: the step then ends when the device is done.
  StepReport step(const StepBatch& batch, int64_t num_targets, double learning_rate, bool asks_device = false);
  /// The same for plans whose encoders are all in the pipeline.
  StepReport step(const std::vector<Inputs>& microbatches, int64_t num_targets, double learning_rate) {
    return step(StepBatch{.microbatches = microbatches}, num_targets, learning_rate);
  }
  /// The action that runs, or ran last: "2F0".
  std::string doing() const { return executor_->doing(); }
  /// The loss of a batch, summed over its target tokens on all ranks.
  double evaluate(const StepBatch& batch);
  /// The next tokens of texts, a text a microbatch: prompts, then one token each. Logits of the tokens after them, by
  /// microbatch, [vocabulary], on the one rank that tells them for its share of the batch; empty on others. The plan
  /// must not share rows out by context parallelism.
  std::vector<at::Tensor> grow(const StepBatch& batch, GrowingTexts& texts);
  double evaluate(const std::vector<Inputs>& microbatches) { return evaluate(StepBatch{.microbatches = microbatches}); }

 private:
  explicit TrainingRank(ModelNumbers numbers) : numbers_(std::move(numbers)) {}
  std::vector<Inputs> share_out(const StepBatch& batch) const;
  void begin_encoders(const StepBatch& batch, const std::vector<Inputs>& microbatches, bool has_gradients);
  void end_encoders();
  /// Of UPDATE, or of EU.
  TrainedStage& stage_of(const Action& action);
  /// Sums gradients over ranks, and returns the squared norm of each module's.
  std::vector<double> finish_gradients();
  void note_modules(const Model& model);
  /// Of gradients here, each counted once among ranks.
  std::vector<double> squares_of_modules(bool is_exact) const;
  bool has_module(const TrainedStage& stage, ModuleKind module) const;
  bool tells() const;
  bool tells_of_routers() const;
  double sum_of_first(const at::Tensor& number);
  void release_values();

  ModelNumbers numbers_;
  int64_t vocabulary_ = 0;
  BatchShape batch_shape_;
  double max_gradient_norm_ = 0;
  at::TensorOptions options_;
  std::optional<Group> everyone_;
  std::vector<ModuleKind> modules_;                             ///< of the model
  std::unordered_map<const Parameter*, ModuleKind> module_of_;  ///< of this rank's parameters
  Routers routers_;
  std::unique_ptr<TrainedModule> llm_;    ///< the llm with inline encoders; null where it is not
  std::vector<TrainedEncoder> encoders_;  ///< beside the pipeline, in the plan's order
  std::vector<TrainedStage*> stages_;     ///< the llm's, in the order of its chunks, then encoders'
  std::unique_ptr<PipelineExecutor> executor_;
};

}  // namespace weft
