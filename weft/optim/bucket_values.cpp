#include "weft/optim/bucket_values.h"

#include <algorithm>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "weft/base/check.h"
#include "weft/tensor/flat_memory.h"
#include "weft/tensor/local_tensor.h"

namespace weft {

BucketValues::BucketValues(std::shared_ptr<const ParameterBuckets> buckets, Group group, const ValueOptions& options)
    : buckets_(std::move(buckets)), group_(std::move(group)), options_(options) {
  const at::NoGradGuard no_graph;
  for (size_t b = 0; b < buckets_->size(); ++b) parts_.push_back(make_part(b));
}

BucketValues::Part BucketValues::make_part(size_t bucket) const {
  const BucketLayout& layout = (*buckets_)[bucket];
  const ElementRange owned = buckets_->owned(bucket);
  const auto options = at::TensorOptions().device(buckets_->device()).dtype(options_.value_type);
  const bool has_master = layout.is_trained && options_.master_type != options_.value_type;

  Part part;
  // What comes and goes has no elements yet, only an address for its views.
  part.whole =
      options_.releases ? at::empty({layout.num_elements}, options) : at::zeros({layout.num_elements}, options);
  part.owned = options_.releases ? at::zeros({owned.size()}, options) : range_view(part.whole, owned);
  part.master = has_master ? at::zeros({owned.size()}, options.dtype(options_.master_type)) : part.owned;
  for (const BucketSlot& slot : layout.slots) {
    Parameter& parameter = buckets_->parameter(slot);
    const at::Tensor given = parameter.value.detach();
    const at::Tensor view = slot_view(part.whole, slot, given.sizes());
    const ElementRange mine = common(slot.elements, owned);
    if (num_held(given) > 0) {
      // Masters are of the values as they were given, which may have more precision than they will have from now on.
      if (mine.size() > 0) {
        const at::Tensor own = range_view(given.reshape({-1}), shifted(mine, -slot.elements.begin));
        range_view(part.owned, shifted(mine, -owned.begin)).copy_(own);
        if (has_master) range_view(part.master, shifted(mine, -owned.begin)).copy_(own);
      }
      if (!options_.releases) view.copy_(given);
    }
    parameter.value.set_data(view);
  }
  if (options_.releases) free_memory(part.whole);
  part.is_released = options_.releases;
  return part;
}

void BucketValues::start_all_gather(size_t bucket) {
  Part& part = parts_[bucket];
  if (part.whole.numel() == 0) return;
  const at::Tensor mine = range_view(part.whole, buckets_->owned(bucket));
  Work work = group_.all_gather(buffer_of(mine), buffer_of(part.whole));
  if (options_.overlap)
    part.arriving = std::move(work);
  else
    work.wait();
}

void BucketValues::publish_masters(size_t bucket) {
  const at::NoGradGuard no_graph;
  if (const at::Tensor owned = owned_values(bucket); owned.defined()) owned.copy_(parts_[bucket].master);
  publish(bucket);
}

void BucketValues::publish(size_t bucket) {
  const at::NoGradGuard no_graph;
  if (options_.releases)
    release_bucket(bucket);
  else if (options_.has_shards)
    start_all_gather(bucket);
}

void BucketValues::adopt() {
  const at::NoGradGuard no_graph;
  for (size_t b = 0; b < parts_.size(); ++b) {
    Part& part = parts_[b];
    WEFT_CHECK(!part.is_released && !part.arriving, "values to adopt that are not whole");
    if (options_.releases) part.owned.copy_(range_view(part.whole, buckets_->owned(b)));
    if (!part.master.is_same(part.owned)) part.master.copy_(part.owned);
  }
}

void BucketValues::start_gather(std::optional<int64_t> bundle) {
  const at::NoGradGuard no_graph;
  for (const size_t b : of_bundle(bundle)) {
    Part& part = parts_[b];
    if (!part.is_released) continue;
    allocate_memory(part.whole);
    range_view(part.whole, buckets_->owned(b)).copy_(part.owned);
    part.is_released = false;
    start_all_gather(b);
    peak_elements_ = std::max(peak_elements_, held_elements());
  }
}

void BucketValues::gather(std::optional<int64_t> bundle) {
  start_gather(bundle);
  finish_arrivals(bundle);
}

void BucketValues::finish_arrivals(std::optional<int64_t> bundle) {
  for (const size_t b : of_bundle(bundle)) {
    if (parts_[b].arriving) parts_[b].arriving->wait();
    parts_[b].arriving.reset();
  }
}

void BucketValues::release(std::optional<int64_t> bundle) {
  if (!options_.releases) return;
  for (const size_t b : of_bundle(bundle)) release_bucket(b);
}

void BucketValues::release_bucket(size_t bucket) {
  Part& part = parts_[bucket];
  if (part.is_released) return;
  if (part.arriving) part.arriving->wait();
  part.arriving.reset();
  free_memory(part.whole);
  part.is_released = true;
}

std::vector<size_t> BucketValues::of_bundle(std::optional<int64_t> bundle) const {
  std::vector<size_t> found;
  // Forwards use parameters in the order in which they were given, which is the reverse of the buckets'.
  for (size_t b = parts_.size(); b-- > 0;)
    if (!bundle || (*buckets_)[b].bundle == *bundle) found.push_back(b);
  return found;
}

int64_t BucketValues::held_elements() const {
  int64_t count = 0;
  for (const Part& part : parts_) count += num_held(part.whole) + (options_.releases ? num_held(part.owned) : 0);
  return count;
}

int64_t BucketValues::held_masters() const {
  int64_t count = 0;
  for (const Part& part : parts_)
    if (!part.master.is_same(part.owned)) count += num_held(part.master);
  return count;
}

}  // namespace weft
