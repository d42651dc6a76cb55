#pragma once

#include <deque>
#include <optional>
#include <vector>

#include "weft/cost/walk_context.h"
#include "weft/meaning/gradient_order.h"
#include "weft/meaning/weight_order.h"
#include "weft/plan/plan.h"

namespace weft {

/// What a stage's weights hold for a while as microbatches go through its blocks, counted as pipeline/stage_weights
/// and optim have it: whole values with ZeRO 3, whole gradients, and what updates make in passing.
class WeightsWalk {
 public:
  /// `module` is the one whose pipeline the stage is of.
  WeightsWalk(const Plan& plan, const ModulePlan& module, const StageContent& stage, ByteCount& count);

  void before_forward(size_t block);
  void after_forward(size_t block);
  /// A backward has come to the output of a block.
  void reach(size_t block);

  void begin_backward(WeightQueue* queue);
  void end_backward();
  void begin_gradients(bool is_last);
  void end_gradients();
  void reduce();
  /// All sums have arrived.
  void finish_reduce();
  /// Squares of gradients are summed.
  void measure();
  void update();

  /// Of gradients that are there whole from the first backward to the end of a step.
  int64_t whole_gradient_bytes() const;

 private:
  struct Flight {
    size_t bucket = 0;
    CountedTensor whole;
    CountedTensor part;
  };
  /// What one of the optimizers has.
  struct Part {
    StageBuckets buckets;
    std::vector<StageWeight> weights;          ///< in the order in which slots count them
    std::vector<std::vector<size_t>> trained;  ///< by block: weights, in order
    std::vector<size_t> bucket_of;             ///< by weight
    std::vector<CountedTensor> values;         ///< by bucket, where whole ones come and go
    std::vector<CountedTensor> gradients;      ///< by bucket: until they are scattered, or the step is over
    std::vector<CountedTensor> loose;  ///< by block: gradients that were made before their place in a bucket was
    CountedTensor borrowed;            ///< of a table that a head is tied to, before its own block comes
    std::deque<Flight> flights;
    int64_t largest = 0;
    int64_t table_elements = 0;  ///< of the embedding that a head is tied to
    GradientOrder order;

    bool scatters() const { return buckets.rules.scatters_gradients; }
    /// Elements of a bucket that a rank owns.
    int64_t owned(const BucketLayout& bucket) const {
      return buckets.rules.divides_states ? bucket.num_elements / buckets.num_ranks : bucket.num_elements;
    }
  };

  Part make_part(const StageContent& stage, StageBuckets buckets) const;
  void take(WeightStep step, size_t block);
  void start_gather(size_t block);
  void release(size_t block);
  void make_whole(size_t block);
  void make_gradient(Part& part, size_t bucket);
  /// Gradients that are made before a queue of weight gradients comes to their block.
  void make_loose(size_t block);
  void expect(size_t block);
  void complete_from(size_t block);
  /// Gradients of copied weights lie side by side while ranks sum them.
  void sum_copies(const Part& part, size_t block);
  void send(Part& part, size_t bucket);
  void land_first(Part& part);
  /// Of one bucket, for the norm of one module's gradients.
  void sum_squares(const Part& part, const BucketLayout& bucket, int32_t module, int64_t gradient_bytes);

  const Plan& plan_;
  std::vector<StageBlockRules> blocks_;
  ByteCount& count_;
  int64_t value_bytes_, reduce_bytes_, master_bytes_;
  std::vector<Part> parts_;
  std::vector<StageContent::Copies> copies_;  ///< by block; none on one tensor-parallel rank
  WeightQueue* queue_ = nullptr;
  WeightOrder order_;
};

}  // namespace weft
