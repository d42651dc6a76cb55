#include "weft/simulate/weights_walk.h"

#include <algorithm>

#include "weft/meaning/square_ranges.h"

namespace weft {
WeightsWalk::WeightsWalk(const Plan& plan, const ModulePlan& module, const StageContent& stage, ByteCount& count)
    : plan_(plan),
      blocks_(stage.blocks()),
      count_(count),
      value_bytes_(element_bytes_of(plan.precision.compute)),
      reduce_bytes_(element_bytes_of(plan.precision.reduce)),
      master_bytes_(element_bytes_of(plan.precision.master)),
      order_(weight_order(stage.blocks())) {
  parts_.push_back(make_part(stage, stage.buckets(module, /*of_experts=*/false)));
  if (module.ep > 1) parts_.push_back(make_part(stage, stage.buckets(module, /*of_experts=*/true)));
  if (module.tp > 1) copies_ = stage.copies();
}

WeightsWalk::Part WeightsWalk::make_part(const StageContent& stage, StageBuckets buckets) const {
  GradientOrder order(stage, buckets, plan_.overlap_dp);
  Part part{.buckets = std::move(buckets), .order = std::move(order)};
  const std::vector<BucketLayout>& layouts = part.buckets.layouts;
  part.trained.resize(stage.blocks().size());
  part.loose.resize(stage.blocks().size());
  part.bucket_of.resize(part.buckets.weights.size());
  part.values.resize(layouts.size());
  part.gradients.resize(layouts.size());
  for (size_t b = 0; b < layouts.size(); ++b) {
    const BucketLayout& bucket = layouts[b];
    if (bucket.is_trained) part.largest = std::max(part.largest, bucket.num_elements);
    for (const BucketSlot& slot : bucket.slots) part.bucket_of[slot.parameter] = b;
  }
  for (const size_t weight : part.buckets.weights) {
    const StageWeight& own = stage.weights()[weight];
    if (own.is_trained) part.trained[own.block].push_back(part.weights.size());
    if (own.is_trained && own.is_of_table && blocks_.back().borrowed == own.block)
      part.table_elements += own.weight.elements;
    part.weights.push_back(own);
  }
  return part;
}

void WeightsWalk::start_gather(size_t block) {
  for (Part& part : parts_) {
    if (!part.buckets.rules.releases_values) continue;
    for (const int64_t bundle : part.buckets.bundles[block]) {
      for (size_t b = part.values.size(); b-- > 0;) {
        const BucketLayout& bucket = part.buckets.layouts[b];
        if (bucket.bundle == bundle && !part.values[b].is_defined())
          part.values[b] = CountedTensor(count_, bucket.num_elements * value_bytes_);
      }
    }
  }
}

void WeightsWalk::release(size_t block) {
  for (Part& part : parts_) {
    for (const int64_t bundle : part.buckets.bundles[block]) {
      for (size_t b = 0; b < part.values.size(); ++b) {
        if (part.buckets.layouts[b].bundle == bundle) part.values[b].reset();
      }
    }
  }
}

void WeightsWalk::before_forward(size_t block) {
  order_.before_forward(block, [this](WeightStep step, size_t each) { take(step, each); });
}

void WeightsWalk::after_forward(size_t block) {
  order_.after_forward(block, [this](WeightStep step, size_t each) { take(step, each); });
}

void WeightsWalk::begin_backward(WeightQueue* queue) {
  queue_ = queue;
  order_.begin_backward();
}

void WeightsWalk::end_backward() {
  order_.end_backward([this](WeightStep step, size_t block) { take(step, block); });
  queue_ = nullptr;
}

void WeightsWalk::reach(size_t block) {
  order_.reach(block, [this](WeightStep step, size_t each) { take(step, each); });
}

void WeightsWalk::take(WeightStep step, size_t block) {
  switch (step) {
    case WeightStep::kGather:
    case WeightStep::kStartGather:
      return start_gather(block);
    case WeightStep::kRelease:
      return release(block);
    case WeightStep::kExpect:
      make_whole(block);
      if (queue_ == nullptr) return expect(block);
      make_loose(block);
      queue_->push_back([this, block] { expect(block); });
      return;
    case WeightStep::kComplete:
      if (queue_ == nullptr) return complete_from(block);
      queue_->push_back([this, block] { complete_from(block); });
      return;
  }
}

void WeightsWalk::make_whole(size_t block) {
  for (Part& part : parts_) {
    if (part.scatters()) continue;
    for (const size_t weight : part.trained[block]) make_gradient(part, part.bucket_of[weight]);
    if (!blocks_[block].borrowed) continue;
    for (const size_t weight : part.trained[*blocks_[block].borrowed]) make_gradient(part, part.bucket_of[weight]);
  }
}

void WeightsWalk::make_gradient(Part& part, size_t bucket) {
  CountedTensor& whole = part.gradients[bucket];
  if (!whole.is_defined()) whole = CountedTensor(count_, part.buckets.layouts[bucket].num_elements * reduce_bytes_);
}

int64_t WeightsWalk::whole_gradient_bytes() const {
  int64_t elements = 0;
  for (const Part& part : parts_) {
    if (part.scatters()) continue;
    for (const BucketLayout& bucket : part.buckets.layouts) elements += bucket.is_trained ? bucket.num_elements : 0;
  }
  return elements * reduce_bytes_;
}

void WeightsWalk::make_loose(size_t block) {
  for (Part& part : parts_) {
    // What an earlier microbatch left, whose weight gradients are still to come, is added to.
    if (!part.scatters() || part.loose[block].is_defined()) continue;
    int64_t elements = 0;
    for (const size_t weight : part.trained[block])
      elements += part.weights[weight].weight.is_product ? 0 : part.weights[weight].weight.elements;
    if (elements > 0) part.loose[block] = CountedTensor(count_, elements * reduce_bytes_);
  }
}

void WeightsWalk::expect(size_t block) {
  for (Part& part : parts_) {
    if (!part.scatters()) continue;
    for (const size_t weight : part.trained[block]) make_gradient(part, part.bucket_of[weight]);
    part.loose[block].reset();
    if (block == 0 || !blocks_.back().borrowed || block == *blocks_.back().borrowed) part.borrowed.reset();
    if (!blocks_[block].borrowed || part.loose[*blocks_[block].borrowed].is_defined()) continue;
    part.borrowed = CountedTensor(count_, part.table_elements * reduce_bytes_);
  }
}

void WeightsWalk::begin_gradients(bool is_last) {
  for (Part& part : parts_) part.order.begin_gradients(is_last);
}

void WeightsWalk::complete_from(size_t block) {
  for (Part& part : parts_)
    part.order.complete_from(
        block, [&](size_t complete) { sum_copies(part, complete); }, [&](size_t bucket) { send(part, bucket); });
}

void WeightsWalk::sum_copies(const Part& part, size_t block) {
  if (copies_.empty() || &part != &parts_.front()) return;  // tensor parallelism cuts experts, and never copies them
  for (const int64_t elements : {copies_[block].over_tp, copies_[block].of_keys})
    const CountedTensor together(count_, elements * reduce_bytes_);
}

void WeightsWalk::send(Part& part, size_t bucket) {
  if (!part.scatters()) return make_gradient(part, bucket);
  const BucketLayout& layout = part.buckets.layouts[bucket];
  const auto in_flight = [&] {
    int64_t elements = layout.num_elements;
    for (const Flight& flight : part.flights) elements += part.buckets.layouts[flight.bucket].num_elements;
    return static_cast<double>(elements);
  };
  while (!part.flights.empty() && in_flight() > kMostScattered * static_cast<double>(part.largest)) land_first(part);
  CountedTensor whole = std::exchange(part.gradients[bucket], {});
  if (!whole.is_defined()) whole = CountedTensor(count_, layout.num_elements * reduce_bytes_);
  const CountedTensor own(count_, part.owned(layout) * reduce_bytes_);
  part.flights.push_back({bucket, whole, own});
  while (!plan_.overlap_dp && !part.flights.empty()) land_first(part);
}

void WeightsWalk::land_first(Part& part) {
  if (reduce_bytes_ != master_bytes_) {
    const BucketLayout& layout = part.buckets.layouts[part.flights.front().bucket];
    const CountedTensor converted(count_, part.owned(layout) * master_bytes_);
  }
  part.flights.pop_front();
}

void WeightsWalk::end_gradients() {
  complete_from(0);
  for (Part& part : parts_)
    part.order.end_gradients([&](size_t block) { sum_copies(part, block); },
                             [&](size_t bucket) { send(part, bucket); });
}

void WeightsWalk::reduce() {
  for (size_t block = 0; block < blocks_.size(); ++block) make_whole(block);
  for (Part& part : parts_)
    part.order.reduce([&](size_t block) { sum_copies(part, block); }, [&](size_t bucket) { send(part, bucket); });
}

void WeightsWalk::finish_reduce() {
  for (Part& part : parts_) {
    while (!part.flights.empty()) land_first(part);
  }
}

void WeightsWalk::measure() {
  if (!count_.is_of_processor()) return;
  for (const Part& part : parts_) {
    const int64_t gradient_bytes = part.scatters() ? master_bytes_ : reduce_bytes_;
    if (gradient_bytes == 8) continue;
    for (const BucketLayout& bucket : part.buckets.layouts) {
      if (!bucket.is_trained) continue;
      for (size_t module = 0; module < plan_.modules.size(); ++module)
        sum_squares(part, bucket, static_cast<int32_t>(module), gradient_bytes);
    }
  }
}

void WeightsWalk::sum_squares(const Part& part, const BucketLayout& bucket, int32_t module, int64_t gradient_bytes) {
  SquareRanges joined;
  // Which part of a range a rank owns, whether it counts what others have, too, and whose copies of keys count, depends
  // on its place among them.
  bool is_sure = part.buckets.num_ranks == 1;
  for (const BucketSlot& slot : bucket.slots) {
    const StageWeight& weight = part.weights[slot.parameter];
    joined.add(slot.elements, weight.is_counted && weight.module == module ? 1 : 0);
    is_sure &= weight.weight.same_keys == 0;
  }
  for (const WeightedRange& range : joined.ranges()) {
    const int64_t elements = std::min(range.elements.size(), part.owned(bucket));
    // Few are converted to double precision, many of half precision to single, and then there is a sum for every row.
    int64_t bytes = std::min(elements, kFewSquares - 1) * 8;
    const int64_t by_rows = (gradient_bytes < 4 ? elements * 4 : 0) + elements / kSquareRow * (4 + 8);
    if (is_sure && elements >= kFewSquares) bytes = by_rows;
    if (!is_sure && elements >= kFewSquares) bytes = std::max(bytes, by_rows);
    if (!is_sure) count_.pass(bytes);
    if (is_sure) const CountedTensor converted(count_, bytes);
  }
}

void WeightsWalk::update() {
  for (const Part& part : parts_) {
    if (part.scatters() || reduce_bytes_ == master_bytes_) continue;
    for (const size_t b : part.order.in_order())
      const CountedTensor exact(count_, part.owned(part.buckets.layouts[b]) * master_bytes_);
  }
}

}  // namespace weft
