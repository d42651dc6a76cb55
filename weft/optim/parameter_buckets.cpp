#include "weft/optim/parameter_buckets.h"

#include "weft/base/check.h"

namespace weft {

ParameterBuckets::ParameterBuckets(std::vector<StageParameter> parameters, const BucketOptions& options,
                                   bool has_shards, int64_t shard)
    : parameters_(std::move(parameters)),
      layouts_(lay_out_buckets(parameters_, options)),
      num_shards_(has_shards ? options.num_shards : 1),
      shard_(has_shards ? shard : 0) {
  for (size_t b = 0; b < layouts_.size(); ++b) {
    for (const BucketSlot& slot : layouts_[b].slots) {
      const Parameter& here = parameter(slot);
      WEFT_CHECK(here.value.device() == device(), "{} is on {}, others of its stage on {}", here.name(),
                 here.value.device().str(), device().str());
      WEFT_CHECK(bucket_of_.emplace(&here, b).second, "{} is given twice", here.name());
    }
  }
}

ElementRange ParameterBuckets::owned(size_t bucket) const {
  const int64_t size = layouts_[bucket].num_elements / num_shards_;
  return {shard_ * size, (shard_ + 1) * size};
}

size_t ParameterBuckets::bucket_of(const Parameter& parameter) const {
  const auto found = bucket_of_.find(&parameter);
  WEFT_CHECK(found != bucket_of_.end(), "{} is no parameter of this stage", parameter.name());
  return found->second;
}

at::Device ParameterBuckets::device() const {
  return parameters_.empty() ? at::Device(at::kCPU) : parameters_.front().parameter->value.device();
}

at::Tensor slot_view(const at::Tensor& flat, const BucketSlot& slot, at::IntArrayRef shape) {
  return range_view(flat, slot.elements).view(shape);
}

at::Tensor range_view(const at::Tensor& flat, const ElementRange& range) {
  return flat.narrow(0, range.begin, range.size());
}

}  // namespace weft
