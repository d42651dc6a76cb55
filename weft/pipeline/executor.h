#pragma once

#include <deque>
#include <functional>
#include <map>
#include <vector>

#include "weft/comm/group.h"
#include "weft/parallelize/stage.h"
#include "weft/schedule/schedule.h"
#include "weft/schedule/timeline.h"

namespace weft {

/// What others do at a stage's actions: its optimizer.
struct StageHooks {
  std::function<void()> before_use;        ///< its weights are about to be used
  std::function<void()> after_use;         ///< and are not any more
  std::function<void()> microbatch_done;   ///< a microbatch's weight gradients are complete
  std::function<void()> reduce_gradients;  ///< REDUCE_GRAD
};

/// What a step gave on one rank.
struct StepOutput {
  at::Tensor loss_sum;                ///< over this rank's target tokens; undefined where the last stage is elsewhere
  at::Tensor balance_loss;            ///< what routers here add to the loss; undefined where there are none
  std::vector<TimelineEvent> events;  ///< in the order of the row
};

/// Runs one pipeline rank's row of a lowered schedule, action by action. Autograd's graphs are cut at every stage: a
/// stage's backward is one call on its own graph.
class PipelineExecutor {
 public:
  /// `stages` are those of this row, by stage, nothing for others'. `pipeline` has the pipeline's ranks in order.
  PipelineExecutor(Schedule lowered, int32_t row, std::vector<StageModel*> stages, Group pipeline);

  /// One step over microbatches: the loss is the sum over target tokens times `loss_scale`. UPDATE actions call
  /// `update` once, at the first of them.
  StepOutput run(const std::vector<Inputs>& microbatches, double loss_scale, const std::vector<StageHooks>& hooks,
                 const std::function<void()>& update);

 private:
  /// A microbatch in a stage, from its forward to its weight gradients.
  struct Visit {
    std::vector<at::Tensor> inputs;   ///< cut off from what made them; by tensors_in
    std::vector<at::Tensor> outputs;  ///< by tensors_out; only those that need a gradient
    at::Tensor loss;
    std::unique_ptr<WeightGradients> deferred;
  };
  using Place = std::pair<int32_t, int32_t>;  ///< stage and microbatch

  struct Transfer {
    std::vector<at::Tensor> tensors;
    std::vector<Work> works;

    void wait();
  };

  void forward(int32_t stage, int32_t microbatch);
  void backward(int32_t stage, int32_t microbatch, bool defers_weights);
  void weights(int32_t stage, int32_t microbatch);
  void send(const std::vector<at::Tensor>& tensors, int32_t to_stage);
  Transfer receive(const std::vector<FlowTensor>& shapes, int32_t from_stage);
  void reap_sends(bool all);
  const StageModel& stage(int32_t index) const { return *stages_[static_cast<size_t>(index)]; }
  const Inputs& inputs(int32_t microbatch) const { return (*microbatches_)[static_cast<size_t>(microbatch)]; }
  const StageHooks& hooks(int32_t index) const { return (*hooks_)[static_cast<size_t>(index)]; }

  Schedule schedule_;
  int32_t row_;
  std::vector<StageModel*> stages_;
  Group pipeline_;
  int32_t first_stage_ = 0;       ///< of those here
  bool splits_backward_ = false;  ///< into I and W

  // Of the step that is running.
  const std::vector<Inputs>* microbatches_ = nullptr;
  const std::vector<StageHooks>* hooks_ = nullptr;
  double loss_scale_ = 1;
  StepOutput output_;
  std::map<Place, Visit> visits_;
  std::map<Place, Transfer> arrived_;                        ///< inputs, by the stage that takes them
  std::map<Place, Transfer> arrived_gradients_;              ///< of outputs, by the stage that gave them
  std::map<Place, std::vector<at::Tensor>> made_;            ///< outputs for the next stage
  std::map<Place, std::vector<at::Tensor>> made_gradients_;  ///< of inputs, for the stage before
  std::deque<Transfer> sends_;
};

}  // namespace weft
