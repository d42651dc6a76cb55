#pragma once

#include <deque>
#include <functional>

#include "weft/meaning/exchange_calls.h"
#include "weft/meaning/gradient_order.h"
#include "weft/meaning/weight_order.h"

namespace weft {

/// What is left for the weight gradients of a backward, in order.
using DeferredCalls = std::deque<std::function<void()>>;

/// What a rank calls for the weights of one stage as microbatches go through its blocks: whole values with ZeRO 3, sums
/// of gradients, values that come back when a step ends.
class WeightCalls {
 public:
  /// All of them outlive it. `place` is of the module whose pipeline the stage is of.
  WeightCalls(const Plan& plan, const ModulePlace& place, const StageContent& stage, CallList& calls);

  void before_forward(size_t block);
  void after_forward(size_t block);
  /// Where gradients of weights are made later, what is said of them is.
  void begin_backward(DeferredCalls* deferred);
  /// A backward has come to the output of a block.
  void reach(size_t block);
  void end_backward();
  void begin_gradients(bool is_last);
  void end_gradients();
  void reduce();
  /// Both copies of a tied table sum what they own of its gradients.
  void sum_tied();
  void update();

 private:
  /// Weights that one group of ranks has the same of.
  struct Part {
    StageBuckets buckets;
    const RankGroup* group;
    bool is_of_experts;
    GradientOrder order;
    std::vector<bool> is_here;  ///< by bucket: whole values, where they come and go
  };

  void take(WeightStep step, size_t block);
  void gather(size_t block);
  void release(size_t block);
  /// Gradients of what tensor-parallel ranks have the same of and see a part of the rows, or the heads, each.
  void sum_copies(const Part& part, size_t block);
  void send(const Part& part, size_t bucket);
  void complete_from(size_t block);
  template <typename Follow>
  void each_part(Follow follow);

  const PrecisionPlan& precision_;
  const ModulePlace& place_;
  CallList& calls_;
  std::vector<Part> parts_;
  std::vector<StageContent::Copies> copies_;  ///< by block
  WeightOrder order_;
  DeferredCalls* deferred_ = nullptr;
};

}  // namespace weft
