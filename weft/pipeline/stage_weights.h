#pragma once

#include <functional>
#include <vector>

#include "weft/layers/weight_gradients.h"
#include "weft/meaning/weight_order.h"
#include "weft/optim/stage_optimizer.h"
#include "weft/parallelize/block_hooks.h"

namespace weft {

/// A stage's weights as microbatches go through its blocks, in the order of meaning/weight_order.h: with ZeRO 3 values
/// come and go, and a rank keeps those that it owns; and a block's gradients are handed to their optimizer as soon as
/// they are complete, while the backward goes on with the blocks before it.
class StageWeights {
 public:
  struct Options {
    bool overlap = true;  ///< gradients may go before the step's last backward is over
    /// To be done with an optimizer's complete gradients of a block before it sums them over ranks.
    std::function<void(const StageOptimizer& optimizer, size_t block)> complete;
  };
  /// Every parameter is one optimizer's: parameters that other ranks have the same of are others' than experts that
  /// only some have. Optimizers may differ in what they divide. With ZeRO 3 a block's parameters are of bundles that no
  /// other's are.
  StageWeights(const std::vector<StageBlock>& blocks, const std::vector<StageOptimizer*>& optimizers, Options options);
  StageWeights(const StageWeights&) = delete;
  StageWeights& operator=(const StageWeights&) = delete;

  /// For the forward, which refers to them until its backward.
  const BlockHooks& hooks() const { return hooks_; }

  /// Around a backward. Where there is a queue, weight gradients are complete when it has run.
  void begin_backward(WeightGradients* deferred);
  void end_backward();

  /// Around what completes a microbatch's weight gradients: a backward, or a queue's run. `is_last`: nothing more is
  /// added in this step.
  void begin_gradients(bool is_last);
  void end_gradients();

  /// All microbatches are through: the rest is on its way to be summed when this returns.
  void reduce();

 private:
  /// What one of the optimizers has of the blocks, and how far its gradients are.
  struct Part {
    StageOptimizer* optimizer = nullptr;
    std::vector<std::vector<Parameter*>> trained;  ///< by block
    std::vector<std::vector<int64_t>> bundles;     ///< by block: of all parameters that it uses
    size_t complete_from = 0;                      ///< blocks from here on have complete gradients
    bool hands_on = false;                         ///< complete gradients go to the optimizer now
    bool has_handed_on = false;                    ///< those of the whole step

    bool scatters() const { return optimizer->rules().scatters_gradients; }
  };

  Part make_part(StageOptimizer& optimizer) const;
  void gather(size_t block);
  void start_gather(size_t block);
  void release(size_t block);
  void take(WeightStep step, size_t block);
  /// Now, or when the queue of weight gradients comes to it.
  void in_turn(std::function<void()> task);
  /// Of optimizers that scatter gradients, or of the others.
  void expect(size_t block, bool scattered);
  void complete_from(size_t block);
  void complete_from(Part& part, size_t block);

  const std::vector<StageBlock>& blocks_;
  std::vector<Part> parts_;  ///< by optimizer
  Options options_;
  WeightOrder order_;
  BlockHooks hooks_;
  WeightGradients* deferred_ = nullptr;
};

}  // namespace weft
