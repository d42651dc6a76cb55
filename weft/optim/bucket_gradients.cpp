#include "weft/optim/bucket_gradients.h"

#include <algorithm>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "weft/base/check.h"
#include "weft/meaning/zero_rules.h"
#include "weft/tensor/flat_memory.h"
#include "weft/tensor/local_tensor.h"

namespace weft {

BucketGradients::BucketGradients(std::shared_ptr<const ParameterBuckets> buckets, Group group,
                                 const GradientOptions& options)
    : buckets_(std::move(buckets)), group_(std::move(group)), options_(options) {
  gradients_.resize(buckets_->size());
  wholes_.resize(buckets_->size());
  num_missing_.resize(buckets_->size());
  is_ready_.resize(buckets_->size());
  is_placed_.resize(buckets_->size());
  for (size_t b = 0; b < buckets_->size(); ++b) {
    const BucketLayout& layout = (*buckets_)[b];
    if (!layout.is_trained) continue;
    for (const BucketSlot& slot : layout.slots) buckets_->parameter(slot).gradient_type = options_.type;
    if (scatters_every_microbatch())
      gradients_[b] = at::empty({buckets_->owned(b).size()},
                                at::TensorOptions().device(buckets_->device()).dtype(options_.sum_type));
    largest_bucket_ = std::max(largest_bucket_, layout.num_elements);
    if (layout.num_elements > 0) trained_.push_back(b);
  }
  begin_step();
}

void BucketGradients::begin_step() {
  const at::NoGradGuard no_graph;
  WEFT_CHECK(flights_.empty(), "a step begins while gradients of the last are on their way");
  for (size_t b = 0; b < buckets_->size(); ++b) {
    if (!(*buckets_)[b].is_trained) continue;
    if (scatters_every_microbatch()) gradients_[b].zero_();
    wholes_[b].reset();
    is_placed_[b].assign((*buckets_)[b].slots.size(), false);
    // Whole gradients are there from the first backward on that adds to them.
    for (const BucketSlot& slot : (*buckets_)[b].slots) buckets_->parameter(slot).gradient = at::Tensor();
  }
  is_reduced_ = false;
  peak_elements_ = held_elements();
  expect_all();
}

void BucketGradients::expect_all() {
  for (size_t b = 0; b < buckets_->size(); ++b) {
    num_missing_[b] = (*buckets_)[b].slots.size();
    is_ready_[b].assign(num_missing_[b], false);
  }
  num_sent_ = 0;
}

void BucketGradients::expect(Parameter& parameter) {
  const size_t bucket = buckets_->bucket_of(parameter);
  const std::vector<BucketSlot>& slots = (*buckets_)[bucket].slots;
  for (size_t s = 0; s < slots.size(); ++s) {
    if (&buckets_->parameter(slots[s]) == &parameter) place_in_whole(bucket, s);
  }
  note_peak();
}

void BucketGradients::place_all_in_whole(size_t bucket) {
  for (size_t s = 0; s < (*buckets_)[bucket].slots.size(); ++s) place_in_whole(bucket, s);
}

void BucketGradients::place_in_whole(size_t bucket, size_t place) {
  const at::NoGradGuard no_graph;
  const BucketSlot& slot = (*buckets_)[bucket].slots[place];
  at::Tensor& whole = wholes_[bucket];
  if (!whole.defined()) {
    const int64_t count = (*buckets_)[bucket].num_elements;
    const auto options = at::TensorOptions().device(buckets_->device()).dtype(options_.type);
    // What stays for the step comes again in the next.
    whole = scatters_every_microbatch() ? at::zeros({count}, options) : pages_.zeros(count, options);
  }
  Parameter& parameter = buckets_->parameter(slot);
  const bool is_there = parameter.gradient.defined() && parameter.gradient.is_alias_of(whole);
  WEFT_CHECK(is_there || !is_placed_[bucket][place], "the gradient of {} was replaced by another tensor",
             parameter.name());
  is_placed_[bucket][place] = true;
  if (is_there) return;
  const at::Tensor view = slot_view(whole, slot, parameter.value.sizes());
  if (parameter.gradient.defined()) view.copy_(parameter.gradient);
  parameter.gradient = view;
}

void BucketGradients::ready(const Parameter& parameter) {
  const size_t bucket = buckets_->bucket_of(parameter);
  const std::vector<BucketSlot>& slots = (*buckets_)[bucket].slots;
  const auto slot = std::find_if(slots.begin(), slots.end(),
                                 [&](const BucketSlot& s) { return &buckets_->parameter(s) == &parameter; });
  const size_t place = slot - slots.begin();
  WEFT_CHECK(!is_ready_[bucket][place], "the gradient of {} is ready twice", parameter.name());
  is_ready_[bucket][place] = true;
  --num_missing_[bucket];
  send_complete();
}

void BucketGradients::send_complete() {
  while (num_sent_ < trained_.size() && num_missing_[trained_[num_sent_]] == 0) send(trained_[num_sent_++]);
}

void BucketGradients::microbatch_done() {
  if (!scatters_every_microbatch()) return;
  while (num_sent_ < trained_.size()) send(trained_[num_sent_++]);
  expect_all();
}

void BucketGradients::start_reduce() {
  WEFT_CHECK(!is_reduced_, "gradients of one step are reduced twice");
  if (!scatters_every_microbatch()) {
    while (num_sent_ < trained_.size()) send(trained_[num_sent_++]);
    return;
  }
  for (const size_t b : trained_)
    for (const BucketSlot& slot : (*buckets_)[b].slots)
      WEFT_CHECK(!buckets_->parameter(slot).gradient.defined(), "{} has a gradient that came after the last microbatch",
                 buckets_->parameter(slot).name());
}

void BucketGradients::finish_reduce() {
  WEFT_CHECK(scatters_every_microbatch() || num_sent_ == trained_.size(), "gradients that were not sent are awaited");
  land_all();
  is_reduced_ = true;
}

void BucketGradients::send(size_t bucket) {
  const at::NoGradGuard no_graph;
  const ElementRange owned = buckets_->owned(bucket);
  if (!scatters_every_microbatch()) {
    place_all_in_whole(bucket);
    const Buffer sent = buffer_of(wholes_[bucket]);
    Work work = options_.way == GradientOptions::Way::kAllReduce
                    ? group_.all_reduce(sent, Reduction::kSum)
                    : group_.reduce_scatter(sent, sent.part(owned.begin, owned.size()), Reduction::kSum);
    flights_.push_back({.bucket = bucket, .whole = {}, .part = {}, .work = std::move(work)});
  } else {
    const auto in_flight = [&] {
      int64_t elements = (*buckets_)[bucket].num_elements;
      for (const Flight& flight : flights_) elements += flight.whole.numel();
      return static_cast<double>(elements);
    };
    while (!flights_.empty() && in_flight() > kMostScattered * static_cast<double>(largest_bucket_)) land_first();
    const at::Tensor whole = take_whole(bucket);
    const at::Tensor part = at::empty({owned.size()}, whole.options());
    Work work = group_.reduce_scatter(buffer_of(whole), buffer_of(part), Reduction::kSum);
    flights_.push_back({.bucket = bucket, .whole = whole, .part = part, .work = std::move(work)});
    note_peak();
  }
  if (!options_.overlap) land_all();
}

void BucketGradients::land_first() {
  const at::NoGradGuard no_graph;
  Flight& flight = flights_.front();
  flight.work.wait();
  if (flight.part.defined()) gradients_[flight.bucket].add_(flight.part);
  flights_.pop_front();
}

void BucketGradients::land_all() {
  while (!flights_.empty()) land_first();
}

at::Tensor BucketGradients::take_whole(size_t bucket) {
  const BucketLayout& layout = (*buckets_)[bucket];
  const at::Tensor& first = buckets_->parameter(layout.slots.front()).gradient;
  const bool is_whole = layout.slots.size() == 1 && first.defined() && first.numel() == layout.num_elements &&
                        first.is_contiguous() && first.scalar_type() == options_.type;
  at::Tensor whole;
  if (is_whole && !wholes_[bucket].defined()) {
    whole = first.view({-1});
  } else {
    place_all_in_whole(bucket);
    whole = std::exchange(wholes_[bucket], {});
    is_placed_[bucket].assign(layout.slots.size(), false);
  }
  for (const BucketSlot& slot : layout.slots) buckets_->parameter(slot).gradient = at::Tensor();
  return whole;
}

at::Tensor BucketGradients::reduced(size_t bucket) const {
  WEFT_CHECK(is_reduced_, "gradients are used before they are reduced");
  if (scatters_every_microbatch()) return gradients_[bucket];
  const at::Tensor& whole = wholes_[bucket];
  if (!whole.defined()) return at::empty({0}, at::TensorOptions().device(buckets_->device()).dtype(options_.type));
  return range_view(whole, buckets_->owned(bucket));
}

int64_t BucketGradients::held_elements() const {
  int64_t count = 0;
  for (const at::Tensor& gradient : gradients_) count += num_held(gradient);
  for (const Flight& flight : flights_) count += num_held(flight.whole) + num_held(flight.part);
  for (size_t b = 0; b < buckets_->size(); ++b) {
    count += num_held(wholes_[b]);
    if (!(*buckets_)[b].is_trained) continue;
    for (const BucketSlot& slot : (*buckets_)[b].slots) {
      const at::Tensor& gradient = buckets_->parameter(slot).gradient;
      const bool is_counted = gradient.defined() && wholes_[b].defined() && gradient.is_alias_of(wholes_[b]);
      if (!is_counted) count += num_held(gradient);
    }
  }
  return count;
}

}  // namespace weft
