#pragma once

#include <vector>

#include "weft/meaning/stage_buckets.h"

namespace weft {

/// In which order a stage hands gradients on that one group of ranks sums: blocks as a backward completes them, last
/// block first, and buckets in their order, each once the gradients of all its weights are complete. Where gradients
/// are scattered every microbatch does that, else the last one alone, or the reduction where nothing may overlap.
/// `complete` takes a block, `send` a bucket.
class GradientOrder {
 public:
  GradientOrder(const StageContent& stage, const StageBuckets& buckets, bool overlaps)
      : scatters_(buckets.rules.scatters_gradients), overlaps_(overlaps), trained_(stage.blocks().size()) {
    std::vector<size_t> bucket_of(buckets.weights.size());
    for (size_t bucket = 0; bucket < buckets.layouts.size(); ++bucket) {
      const BucketLayout& layout = buckets.layouts[bucket];
      if (layout.is_trained && layout.num_elements > 0) in_order_.push_back(bucket);
      num_slots_.push_back(layout.slots.size());
      for (const BucketSlot& slot : layout.slots) bucket_of[slot.parameter] = bucket;
    }
    for (size_t i = 0; i < buckets.weights.size(); ++i) {
      const StageWeight& weight = stage.weights()[buckets.weights[i]];
      if (weight.is_trained) trained_[weight.block].push_back(bucket_of[i]);
    }
    expect_all();
  }

  /// Buckets with gradients.
  const std::vector<size_t>& in_order() const { return in_order_; }

  /// Before gradients of a microbatch, which may be the last of the step.
  void begin_gradients(bool is_last) {
    complete_from_ = trained_.size();
    hands_on_ = scatters_ || (is_last && overlaps_);
    has_handed_on_ = hands_on_ && is_last;
  }
  /// Gradients of a block and of all behind it are complete.
  template <typename Complete, typename Send>
  void complete_from(size_t block, Complete complete, Send send) {
    if (!hands_on_) return;
    while (complete_from_ > block) {
      --complete_from_;
      complete(complete_from_);
      for (const size_t bucket : trained_[complete_from_]) {
        --num_missing_[bucket];
        while (num_sent_ < in_order_.size() && num_missing_[in_order_[num_sent_]] == 0) send(in_order_[num_sent_++]);
      }
    }
  }
  template <typename Complete, typename Send>
  void end_gradients(Complete complete, Send send) {
    complete_from(0, complete, send);
    if (!scatters_) return;
    send_rest(send);
    expect_all();
  }
  /// The reduction at the end of a step.
  template <typename Complete, typename Send>
  void reduce(Complete complete, Send send) {
    if (!has_handed_on_ && !scatters_) {
      complete_from_ = trained_.size();
      hands_on_ = true;
      complete_from(0, complete, send);
    }
    has_handed_on_ = false;
    if (!scatters_) send_rest(send);
  }

 private:
  void expect_all() {
    num_missing_ = num_slots_;
    num_sent_ = 0;
  }
  template <typename Send>
  void send_rest(Send& send) {
    while (num_sent_ < in_order_.size()) send(in_order_[num_sent_++]);
  }

  bool scatters_;
  bool overlaps_;
  std::vector<std::vector<size_t>> trained_;  ///< by block: of its trained weights, in order, the buckets
  std::vector<size_t> in_order_;
  std::vector<size_t> num_slots_;    ///< by bucket
  std::vector<size_t> num_missing_;  ///< by bucket: weights whose gradient is not complete
  size_t num_sent_ = 0;              ///< of in_order_
  size_t complete_from_ = 0;
  bool hands_on_ = false;
  bool has_handed_on_ = false;
};

}  // namespace weft
