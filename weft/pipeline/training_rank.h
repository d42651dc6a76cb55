#pragma once

#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "weft/comm/world.h"
#include "weft/optim/stage_optimizer.h"
#include "weft/pipeline/executor.h"
#include "weft/pipeline/step_batch.h"
#include "weft/schedule/step_metrics.h"

namespace weft {

/// What a training run adds to a plan.
struct TrainingSettings {
  AdamWSettings adamw;
  double max_gradient_norm = 0;  ///< 0: gradients are not clipped
  /// Of fresh weights. Without, weights are zero until a checkpoint or a folder is loaded into the optimizers.
  std::optional<uint64_t> seed = 0;
  at::Device device = at::kCPU;
  Pace pace;  ///< for measuring schedules
};

/// What all ranks know after a step.
struct StepReport {
  double loss = 0;  ///< per target token of the whole batch
  /// What routers add to it for balanced loads: every layer's loss times the model's coefficient, the mean over
  /// microbatches and data-parallel ranks.
  double balance_loss = 0;
  double gradient_norm = 0;
  bool is_updated = false;            ///< not where the gradient is not finite: weights are then as before
  std::vector<TimelineEvent> events;  ///< this rank's
  std::optional<ExpertLoad> experts;  ///< of all ranks; nothing without routers
  /// Of this rank, by stage and router: rows that chose each expert.
  std::map<int32_t, std::vector<std::vector<int64_t>>> expert_rows;
  double waited_ms = 0;              ///< on this rank, see StepOutput
  std::string not_finite;            ///< where loss or gradient are not: the module whose doing it is
  std::vector<ActionMemory> memory;  ///< of each event, where this rank's thread counts its memory
};

/// One rank of a plan that trains: its stages, their optimizers, and the groups that they talk in. Every rank of the
/// plan's world makes one and calls it alike.
class TrainingRank {
 public:
  /// The plan must be legal; what training would not obey is an error that names its field.
  static Result<std::unique_ptr<TrainingRank>> create(World& world, const Plan& plan, const TrainingSettings& settings);

  const ModelNumbers& numbers() const { return numbers_; }
  int64_t vocabulary() const { return vocabulary_; }
  /// What deals samples out, and which share of a module's this rank takes; nothing where the module is not here.
  const BatchShape& batch_shape() const { return batch_shape_; }
  std::optional<int64_t> data_parallel_rank(ModuleKind module) const;
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

  /// One step over this rank's share of a batch with so many target tokens on all ranks.
  StepReport step(const StepBatch& batch, int64_t num_targets, double learning_rate);
  /// The same for plans whose encoders are all in the pipeline.
  StepReport step(const std::vector<Inputs>& microbatches, int64_t num_targets, double learning_rate) {
    return step(StepBatch{.microbatches = microbatches}, num_targets, learning_rate);
  }
  /// The action that runs, or ran last: "2F0".
  std::string doing() const { return executor_->doing(); }
  /// The loss of a batch, summed over its target tokens on all ranks.
  double evaluate(const StepBatch& batch);
  double evaluate(const std::vector<Inputs>& microbatches) { return evaluate(StepBatch{.microbatches = microbatches}); }

 private:
  /// Gradients of copies, to be summed over ranks before data parallelism sums them.
  struct Copies {
    Group group;
    std::vector<std::pair<ParameterPtr, ElementRange>> parts;
  };
  struct Stage {
    std::unique_ptr<StageModel> model;
    TensorParallel* tensor_parallel = nullptr;  ///< its pipeline's
    std::unique_ptr<StageOptimizer> optimizer;
    std::unique_ptr<StageOptimizer> experts;  ///< of experts that other ranks have others of; null where there are none
    std::vector<std::vector<Copies>> copies;  ///< by block
    std::unique_ptr<StageWeights> weights;
  };
  /// An encoder beside the pipeline, here or where its rows go.
  struct Encoder {
    size_t module = 0;  ///< of the plan
    ModuleKind kind = ModuleKind::kVision;
    EncoderRows rows;                           ///< as scheduled
    std::optional<int64_t> data_parallel_rank;  ///< where it runs
    std::unique_ptr<ContextParallel> context;   ///< there, too
    std::vector<Inputs> shares;                 ///< of a step's macro batches
    std::unique_ptr<EncoderBridge> bridge;
    std::unique_ptr<EncoderRunner> runner;
  };
  /// What the parts of a rank are made of.
  struct Making {
    World& world;
    const Plan& plan;
    const TrainingSettings& settings;
    const Mesh& text_mesh;
    PipelineExecutor::Settings executor;
  };

  TrainingRank() = default;
  std::optional<Error> make_text(Making& making);
  std::optional<Error> make_encoder(Making& making, size_t module);
  std::optional<Error> make_bridge(Making& making, const Mesh& mesh, Encoder& encoder);
  /// The groups of expert parallelism on one rank.
  struct ExpertGroups {
    Group experts;  ///< the ranks that share out the experts
    Group copies;   ///< those that have the same
  };
  static Result<std::optional<ExpertGroups>> make_expert_groups(World& world, const Mesh& mesh, int64_t ep);
  void make_optimizers(const Making& making, const ModulePlan& module, Stage& stage, const Group& data_parallel,
                       const std::optional<ExpertGroups>& experts);
  void make_weights(const Making& making, Stage& stage);
  void find_copies(World& world, Stage& stage);
  bool is_tied(const ParameterPtr& parameter) const;
  std::vector<Inputs> share_out(const StepBatch& batch) const;
  void begin_encoders(const StepBatch& batch, const std::vector<Inputs>& microbatches, bool has_gradients);
  std::vector<int64_t> rows_needed(const Encoder& encoder, const RowNumbers& numbers,
                                   const std::vector<int64_t>& samples, const Inputs& share, size_t microbatch) const;
  void tie_embeddings(World& world, const Mesh& mesh, const Plan& plan);
  void release_values();
  void sum_tied_embeddings();
  double finish_gradients();
  double sum_of_first(const at::Tensor& number);
  ExpertLoad sum_expert_rows(const StepOutput& output, int64_t moved_bytes);
  std::string find_not_finite(const StepOutput& output);
  double sum_over_ranks(double value);

  ModelNumbers numbers_;
  int64_t vocabulary_ = 0;
  BatchShape batch_shape_;
  std::optional<int64_t> text_data_parallel_rank_;  ///< nothing where the llm is not
  double max_gradient_norm_ = 0;
  at::TensorOptions options_;
  std::optional<Group> everyone_;
  StageModel::TensorParallels tensor_parallel_;  ///< by module of the plan
  TensorParallel* text_ = nullptr;               ///< the llm's; null where it is not
  std::unique_ptr<ContextParallel> text_context_;
  std::optional<Group> same_keys_;  ///< the ranks that have copies of the llm's key heads
  int64_t num_experts_ = 0;
  std::vector<int64_t> first_router_;  ///< by stage, of all routers; at the end their number
  std::optional<Group> expert_group_;
  std::deque<Stage> stages_;       ///< of this rank, in the order of its chunks, then of encoders
  std::vector<Stage*> stage_of_;   ///< by stage of the llm's pipeline, null elsewhere
  std::vector<Encoder> encoders_;  ///< beside the pipeline, in the plan's order
  /// The embedding's copies here where it is tied to a head in another stage, and what keeps them equal.
  std::vector<std::pair<Stage*, ParameterPtr>> embeddings_;
  bool counts_embedding_ = false;  ///< in the gradient's norm, and not on the other rank
  std::optional<Group> embedding_group_;
  std::unique_ptr<PipelineExecutor> executor_;
};

}  // namespace weft
