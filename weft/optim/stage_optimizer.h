#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "weft/comm/group.h"
#include "weft/meaning/square_ranges.h"
#include "weft/meaning/zero_rules.h"
#include "weft/optim/adamw.h"
#include "weft/optim/bucket_gradients.h"
#include "weft/optim/bucket_values.h"
#include "weft/optim/weight_rules.h"

namespace weft {

struct OptimizerOptions {
  /// What data-parallel ranks divide among them: 0 nothing, 1 optimizer states, 2 gradients too, 3 values too.
  int64_t zero = 0;
  bool keep_gathered = false;  ///< ZeRO 3: whole values are kept from update to update
  double buckets_mb = 64;
  bool overlap = true;  ///< communication goes on while the caller computes; without, calls return when it is done
  AdamWSettings adamw;
  std::vector<WeightRule> weight_rules = {};
  double peak_learning_rate = 0;  ///< that rates in these rules stand beside: an update's are in proportion
  at::ScalarType compute_type = at::kBFloat16;  ///< of values
  at::ScalarType master_type = at::kFloat;      ///< of master weights, moments, and ZeRO 2's and 3's gradient sums
  at::ScalarType reduce_type = at::kFloat;      ///< of gradients as layers add to them and ranks sum them
  int64_t alignment = kBucketAlignment;
  std::function<bool(const Parameter&)> has_decay = BucketOptions().has_decay;
};

/// One parameter's elements that this rank owns, as views that may be written. Frozen parameters have no moments.
struct OwnedPart {
  ParameterPtr parameter;
  size_t index = 0;       ///< among the stage's parameters
  ElementRange elements;  ///< of the parameter, flattened
  AdamWState state;
};

/// One bucket's states on this rank.
struct BucketState {
  size_t bucket = 0;
  ElementRange owned;
  AdamWState state;
};

/// What an optimizer knows besides the values; the tensors are the optimizer's own.
struct OptimizerState {
  int64_t step = 0;           ///< updates done
  std::vector<int64_t> late;  ///< see StageOptimizer::restore
  std::vector<BucketState> buckets;
};

/// Elements held by one rank right now.
struct HeldElements {
  int64_t values = 0;     ///< of the compute type
  int64_t gradients = 0;  ///< sums that are kept, and what is on its way
  int64_t states = 0;     ///< master weights apart from values, and moments
};

/// Reduces the gradients of one stage's parameters over data-parallel ranks, updates them, and has ZeRO divide what
/// that takes. Values move into flat buckets of its own when it is made, and stay the same tensors; gradients have
/// theirs from the first backward of a step on. Parameters may come without memory; their elements are zero until
/// owned_parts() are written and restore() is called. Where values come and go, they are not there until they are
/// gathered.
///
/// A step: begin_step; for every microbatch gather_values, forward, backward, microbatch_done; start_reduce and
/// finish_reduce; local_squared_norm; update. Gradients are summed, never averaged. All ranks of the group call
/// begin_step, microbatch_done, start_reduce, update and what moves values alike and in the same order, also among
/// several optimizers that share the group. Within a rank one thread calls.
class StageOptimizer {
 public:
  StageOptimizer(std::vector<StageParameter> parameters, Group data_parallel, OptimizerOptions options);

  /// Forgets gradients.
  void begin_step() {
    gradients_.begin_step();
    values_.forget_peak();
  }
  /// A backward is about to add to this parameter's gradient, which is then there, in memory of its bucket. Needs not
  /// be called: what a backward makes for itself is copied there.
  void expect_gradient(Parameter& parameter) { gradients_.expect(parameter); }
  /// Nothing more will be added to this parameter's gradient before the next microbatch_done (ZeRO 2 and 3) or
  /// start_reduce (0 and 1); so its bucket may go as soon as it is complete. Needs not be called. A bucket waits for
  /// those before it, so that all ranks send them in one order.
  void gradient_ready(const Parameter& parameter) { gradients_.ready(parameter); }
  /// A microbatch's backward is done, weight gradients included. ZeRO 2 and 3: its gradients go to their owners.
  void microbatch_done() { gradients_.microbatch_done(); }
  /// Starts the sum over data-parallel ranks of all that is not on its way yet.
  void start_reduce() { gradients_.start_reduce(); }
  void finish_reduce() { gradients_.finish_reduce(); }
  /// What this rank owns of the reduced gradients in a parameter's bucket; what is written there is what the update
  /// takes.
  at::Tensor reduced_gradients(const Parameter& parameter) const {
    return gradients_.reduced(buckets_->bucket_of(parameter));
  }

  /// Of the reduced gradients that this rank answers for: sum of squares, those of each piece times its weight. Added
  /// up over data-parallel ranks, every element is counted once. One number in double precision, on the device: whoever
  /// reads it waits for all that was asked of that. `is_exact`: squares are taken in double precision, too, which may
  /// be too large for single.
  at::Tensor local_squared_norm(const std::function<double(const Parameter&, const WeightPiece&)>& weight,
                                bool is_exact = false) const;

  /// One AdamW step with gradients times `gradient_scale`; values are new when it returns (ZeRO 3: when they are
  /// gathered).
  void update(double learning_rate, double gradient_scale);
  /// The same, but values may still be on their way until gather_values, which must come before anyone uses them and
  /// before the optimizer ends.
  void start_update(double learning_rate, double gradient_scale);

  /// Makes values whole, of one bundle or all: waits for what is on its way, and with ZeRO 3 fetches what was released.
  void gather_values(std::optional<int64_t> bundle = {}) { values_.gather(bundle); }
  void start_gather_values(std::optional<int64_t> bundle = {}) { values_.start_gather(bundle); }
  /// ZeRO 3, unless they are to be kept: frees values. They must not be used until gathered again.
  void release_values(std::optional<int64_t> bundle = {}) { values_.release(bundle); }

  /// Takes over values that were written into the parameters, which must be whole: gathered.
  void adopt_values() { values_.adopt(); }

  ZeroRules rules() const { return zero_rules(options_.zero, options_.keep_gathered); }
  int64_t step() const { return step_; }
  /// Updates of the parameter at a place among the stage's: all of them, but for one that was thawed later.
  int64_t updates_of(size_t parameter) const { return step_ - late_[parameter]; }
  const std::vector<StageParameter>& parameters() const { return buckets_->parameters(); }
  const std::vector<BucketLayout>& buckets() const { return buckets_->layouts(); }
  ElementRange owned(size_t bucket) const { return buckets_->owned(bucket); }
  /// Whether all ranks of the group own the same: all that the stage has.
  bool owns_copies() const { return !rules().divides_states; }
  const Group& group() const { return group_; }
  /// In the parameters' order, those of which this rank owns nothing left out. With ZeRO 0 every rank owns all.
  std::vector<OwnedPart> owned_parts() const;
  OptimizerState state() const;
  /// Makes values what the master weights are, after owned_parts() were written, and continues from `step`. A parameter
  /// that was thawed after `late` updates, by its place among the stage's, has that many fewer; empty: none was.
  void restore(int64_t step, std::vector<int64_t> late = {});
  /// Takes a state over that has the same buckets, and restores.
  void load(const OptimizerState& state);

  HeldElements held_elements() const;
  /// The most values and the most gradients since the step began.
  HeldElements peak_elements() const;

 private:
  std::vector<WeightedRange> weighted_ranges(
      const BucketLayout& layout, const std::function<double(const Parameter&, const WeightPiece&)>& weight) const;

  bool counts_norm() const { return rules().divides_states || group_.rank() == 0; }
  /// How elements are updated.
  struct Manner {
    double rate_factor = 1;  ///< times the learning rate
    double weight_decay = 0;

    bool operator==(const Manner&) const = default;
  };
  /// Elements of a bucket that this rank owns and that are updated alike.
  struct Stretch {
    ElementRange elements;
    int64_t updates = 0;
    Manner manner;
  };
  std::vector<Stretch> stretches_of(size_t bucket) const;
  Manner manner_of(const BucketLayout& layout, const WeightPiece& piece) const;

  OptimizerOptions options_;
  Group group_;
  std::shared_ptr<const ParameterBuckets> buckets_;
  BucketValues values_;
  BucketGradients gradients_;
  std::vector<AdamWState> states_;  ///< by bucket; empty for frozen ones
  int64_t step_ = 0;
  std::vector<int64_t> late_;  ///< by parameter
};

}  // namespace weft
