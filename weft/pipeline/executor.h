#pragma once

#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include <torch/csrc/autograd/edge.h>

#include "weft/comm/group.h"
#include "weft/meaning/rank_row.h"
#include "weft/parallelize/stage.h"
#include "weft/pipeline/encoder_runner.h"
#include "weft/pipeline/pace.h"
#include "weft/pipeline/stage_weights.h"
#include "weft/schedule/schedule.h"
#include "weft/schedule/timeline.h"

namespace weft {

/// Bytes of this rank's CPU tensors, where its thread counts them: when an action was over, and the most while it ran.
struct ActionMemory {
  int64_t held_bytes = 0;
  int64_t peak_bytes = 0;
  int64_t sent_bytes = 0;  ///< of those held, what is only there because it is on its way to or from another rank
};

/// What a step gave on one rank.
struct StepOutput {
  at::Tensor loss_sum;      ///< over this rank's target tokens; undefined where the last stage is elsewhere
  at::Tensor balance_loss;  ///< what routers here add to the loss; undefined where there are none
  /// In the order of the row. An action begins when it has what it waited for; on a GPU times are the device's where
  /// the run was asked for them, else those at which work was handed over.
  std::vector<TimelineEvent> events;
  /// By stage and microbatch, then by router: rows of this rank that chose each expert, int64 on its device.
  std::map<std::pair<int32_t, int32_t>, std::vector<at::Tensor>> routed_rows;
  /// Of each module that has blocks here, the sum of what its blocks gave: not finite where any of it is not.
  std::map<ModuleKind, at::Tensor> sums;
  double waited_ms = 0;              ///< for neighbours in pipelines, and for rows between modules
  std::vector<ActionMemory> memory;  ///< of each event; empty where it is not counted
};

/// Texts that grow token by token, one a microbatch.
struct GrowingTexts {
  std::vector<int64_t> most_tokens;                              ///< by microbatch
  std::map<std::pair<int32_t, int32_t>, GrowingText> kept = {};  ///< by stage and microbatch, of the stages here
};

/// How a step ends.
struct StepEnd {
  /// All of the rank's gradients are on their way to their sums: before its first update, or at the end of its row.
  std::function<void()> finish;
  std::function<void(const Action&)> update;  ///< UPDATE of a stage, or EU of an encoder
};

/// Runs one pipeline rank's row of a lowered schedule, action by action. Autograd's graphs are cut at every stage: a
/// stage's backward is one call on its own graph.
class PipelineExecutor {
 public:
  /// A stage and its weights.
  struct Stage {
    const StageModel* model = nullptr;
    StageWeights* weights = nullptr;
  };
  /// An encoder beside the pipeline, as far as this rank has to do with it.
  struct Encoder {
    size_t module = 0;  ///< of the plan
    ModuleKind kind = ModuleKind::kVision;
    EncoderRunner* runner = nullptr;  ///< where it runs
    EncoderBridge* bridge = nullptr;  ///< where its rows come from or go to
  };
  /// What a rank has of a plan.
  struct Settings {
    Schedule lowered;
    std::optional<int32_t> row;     ///< nothing: the rank is idle
    std::vector<Stage> stages;      ///< of this row, by stage, nothing for others'
    std::optional<Group> pipeline;  ///< the llm's ranks of one pipeline in order; nothing on other ranks
    std::vector<Encoder> encoders;  ///< as in the schedule
    Pace pace;
    at::Device device = at::kCPU;
    std::function<double()> blocked_ms = {};  ///< how long this rank was blocked in communication so far; may be empty
  };
  explicit PipelineExecutor(Settings settings);

  /// One step over microbatches: the loss is the sum over target tokens times `loss_scale`. Encoders have begun the
  /// step.
  StepOutput run(const std::vector<Inputs>& microbatches, double loss_scale, const StepEnd& step_end,
                 bool asks_device = false);

  /// Of the step that runs: StepOutput::loss_sum, which is complete before its first UPDATE.
  const at::Tensor& loss_so_far() const { return output_.loss_sum; }
  /// The action that runs, or ran last.
  std::string doing() const { return to_text(doing_); }
  /// Only the forwards, in the row's order, and without graphs.
  StepOutput evaluate(const std::vector<Inputs>& microbatches) { return run_forwards(microbatches, nullptr); }
  /// The same for the next tokens of texts, whose logits are then with the last stage's.
  StepOutput grow(const std::vector<Inputs>& microbatches, GrowingTexts& texts) {
    return run_forwards(microbatches, &texts);
  }

 private:
  /// A microbatch in a stage, from its forward to its weight gradients.
  struct Visit {
    std::vector<at::Tensor> inputs;  ///< cut off from what made them; by tensors_in
    /// Where the backward begins, for each of tensors_out that needs a gradient, or for the loss: not the tensors,
    /// which need not stay. Nothing where a stage only passes a tensor on, or all of its blocks are frozen.
    std::vector<std::optional<torch::autograd::Edge>> roots;
    std::unique_ptr<WeightGradients> deferred;
    std::vector<std::pair<EncoderBridge*, at::Tensor>> media;  ///< rows from outside that need a gradient
  };
  using Place = std::pair<int32_t, int32_t>;  ///< stage and microbatch

  struct Transfer {
    std::vector<at::Tensor> tensors;
    std::vector<Work> works;

    void wait();
  };

  StepOutput run_forwards(const std::vector<Inputs>& microbatches, GrowingTexts* texts);
  void begin(const std::vector<Inputs>& microbatches);
  StepOutput end();
  /// What arrived for a stage, as it has it.
  std::vector<at::Tensor> joined(const StageModel& model, const std::vector<FlowTensor>& tensors, Transfer transfer);
  void forward(int32_t stage, int32_t microbatch);
  void backward(int32_t stage, int32_t microbatch, bool defers_weights);
  void weights(int32_t stage, int32_t microbatch);
  void send(const std::vector<at::Tensor>& tensors, int32_t to_stage);
  Transfer receive(const std::vector<FlowTensor>& shapes, int32_t from_stage);
  void reap_sends(bool all);
  double waited_so_far() const;
  double blocked_so_far() const { return blocked_ms_ ? blocked_ms_() : 0; }
  int64_t sent_bytes() const;
  void take_media(const StageModel& model, int32_t microbatch, Visit& visit, Flow& flow);
  void give_media_gradients(const Visit& visit, int32_t microbatch);
  void encode(const Action& action);
  const std::vector<Action>& actions() const;
  const StageModel& stage(int32_t index) const { return *stages_[static_cast<size_t>(index)].model; }
  StageWeights& weights_of(int32_t index) const { return *stages_[static_cast<size_t>(index)].weights; }
  const Inputs& inputs(int32_t microbatch) const { return (*microbatches_)[static_cast<size_t>(microbatch)]; }

  Schedule schedule_;
  std::optional<int32_t> row_;
  std::vector<Stage> stages_;
  std::optional<Group> pipeline_;
  std::vector<Encoder> encoders_;
  Pace pace_;
  at::Device device_;
  std::function<double()> blocked_ms_;
  at::TensorOptions options_;  ///< of activations
  RowBackwards backwards_;

  // Of the step that is running.
  Action doing_;
  const std::vector<Inputs>* microbatches_ = nullptr;
  GrowingTexts* texts_ = nullptr;
  double loss_scale_ = 1;
  at::ScalarType loss_type_ = at::kFloat;
  StepOutput output_;
  std::map<Place, Visit> visits_;
  std::map<Place, Transfer> arrived_;                        ///< inputs, by the stage that takes them
  std::map<Place, Transfer> arrived_gradients_;              ///< of outputs, by the stage that gave them
  std::map<Place, std::vector<at::Tensor>> made_;            ///< outputs for the next stage
  std::map<Place, std::vector<at::Tensor>> made_gradients_;  ///< of inputs, for the stage before
  std::deque<Transfer> sends_;
};

}  // namespace weft
