#include "weft/meaning/weight_calls.h"

namespace weft {
namespace {

int64_t bytes_of(Precision precision) {
  return static_cast<int64_t>(num_bytes(precision));
}

}  // namespace

WeightCalls::WeightCalls(const Plan& plan, const ModulePlace& place, const StageContent& stage, CallList& calls)
    : precision_(plan.precision),
      place_(place),
      calls_(calls),
      copies_(stage.copies()),
      order_(weight_order(stage.blocks())) {
  const auto add_part = [&](StageBuckets buckets, const RankGroup& group, bool is_of_experts) {
    GradientOrder order(stage, buckets, plan.overlap_dp);
    std::vector<bool> is_here(buckets.layouts.size());
    parts_.push_back({std::move(buckets), &group, is_of_experts, std::move(order), std::move(is_here)});
  };
  add_part(stage.buckets(*place.plan, false), place.data, false);
  if (place.plan->ep > 1) add_part(stage.buckets(*place.plan, true), place.same_experts, true);
}

void WeightCalls::before_forward(size_t block) {
  order_.before_forward(block, [this](WeightStep step, size_t each) { take(step, each); });
}

void WeightCalls::after_forward(size_t block) {
  order_.after_forward(block, [this](WeightStep step, size_t each) { take(step, each); });
}

void WeightCalls::begin_backward(DeferredCalls* deferred) {
  deferred_ = deferred;
  order_.begin_backward();
}

void WeightCalls::reach(size_t block) {
  order_.reach(block, [this](WeightStep step, size_t each) { take(step, each); });
}

void WeightCalls::end_backward() {
  order_.end_backward([this](WeightStep step, size_t block) { take(step, block); });
  deferred_ = nullptr;
}

void WeightCalls::take(WeightStep step, size_t block) {
  switch (step) {
    case WeightStep::kGather:
    case WeightStep::kStartGather:
      return gather(block);
    case WeightStep::kRelease:
      return release(block);
    case WeightStep::kExpect:
      return;
    case WeightStep::kComplete:
      if (deferred_ == nullptr) return complete_from(block);
      deferred_->push_back([this, block] { complete_from(block); });
      return;
  }
}

void WeightCalls::gather(size_t block) {
  for (Part& part : parts_) {
    if (!part.buckets.rules.releases_values) continue;
    for (const int64_t bundle : part.buckets.bundles[block]) {
      // Forwards use weights in the order of the stage, which is the reverse of the buckets'.
      for (size_t b = part.is_here.size(); b-- > 0;) {
        const BucketLayout& bucket = part.buckets.layouts[b];
        if (bucket.bundle != bundle || part.is_here[b]) continue;
        part.is_here[b] = true;
        if (bucket.num_elements == 0) continue;
        calls_.add(*part.group, OperationKind::kAllGather, gather_traffic(bucket.num_elements, part.group->size()),
                   bytes_of(precision_.compute));
      }
    }
  }
}

void WeightCalls::release(size_t block) {
  for (Part& part : parts_) {
    for (const int64_t bundle : part.buckets.bundles[block]) {
      for (size_t b = 0; b < part.is_here.size(); ++b) {
        if (part.buckets.layouts[b].bundle == bundle) part.is_here[b] = false;
      }
    }
  }
}

void WeightCalls::sum_copies(const Part& part, size_t block) {
  const int64_t bytes = bytes_of(precision_.reduce);
  if (part.is_of_experts) {
    if (copies_[block].of_experts > 0) calls_.all_reduce(place_.tensor, copies_[block].of_experts, bytes);
    return;
  }
  if (copies_[block].over_tp > 0) calls_.all_reduce(place_.tensor, copies_[block].over_tp, bytes);
  if (copies_[block].of_keys > 0) calls_.all_reduce(place_.same_keys, copies_[block].of_keys, bytes);
}

void WeightCalls::send(const Part& part, size_t bucket) {
  const int64_t elements = part.buckets.layouts[bucket].num_elements, bytes = bytes_of(precision_.reduce);
  if (!part.buckets.rules.divides_states) return calls_.all_reduce(*part.group, elements, bytes);
  calls_.add(*part.group, OperationKind::kReduceScatter, scatter_traffic(elements, part.group->size()), bytes);
}

/// follow(order, complete, send) for every part.
template <typename Follow>
void WeightCalls::each_part(Follow follow) {
  for (Part& part : parts_) {
    follow(
        part.order, [this, &part](size_t block) { sum_copies(part, block); },
        [this, &part](size_t bucket) { send(part, bucket); });
  }
}

void WeightCalls::complete_from(size_t block) {
  each_part([block](GradientOrder& order, auto complete, auto send) { order.complete_from(block, complete, send); });
}

void WeightCalls::begin_gradients(bool is_last) {
  for (Part& part : parts_) part.order.begin_gradients(is_last);
}

void WeightCalls::end_gradients() {
  complete_from(0);
  each_part([](GradientOrder& order, auto complete, auto send) { order.end_gradients(complete, send); });
}

void WeightCalls::reduce() {
  each_part([](GradientOrder& order, auto complete, auto send) { order.reduce(complete, send); });
}

void WeightCalls::sum_tied() {
  const StageBuckets& shared = parts_.front().buckets;
  if (!shared.table) return;
  const int64_t all = shared.layouts[*shared.table].num_elements;
  calls_.all_reduce(place_.tied_ends, shared.rules.divides_states ? all / shared.num_ranks : all,
                    bytes_of(shared.rules.gradient_sums(precision_.reduce, precision_.master)));
}

void WeightCalls::update() {
  for (const Part& part : parts_) {
    if (!part.buckets.rules.returns_values) continue;
    for (const size_t bucket : part.order.in_order()) {
      calls_.add(*part.group, OperationKind::kAllGather,
                 gather_traffic(part.buckets.layouts[bucket].num_elements, part.group->size()),
                 bytes_of(precision_.compute));
    }
  }
}

}  // namespace weft
