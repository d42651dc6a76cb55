#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "weft/optim/bucket_layout.h"

namespace weft {

/// The parameters of a stage in buckets, and which elements of each this rank owns.
class ParameterBuckets {
 public:
  /// `shard` of options.num_shards is this rank's; without shards, every rank owns all.
  ParameterBuckets(std::vector<StageParameter> parameters, const BucketOptions& options, bool has_shards,
                   int64_t shard);

  const std::vector<StageParameter>& parameters() const { return parameters_; }
  const std::vector<BucketLayout>& layouts() const { return layouts_; }
  size_t size() const { return layouts_.size(); }
  const BucketLayout& operator[](size_t bucket) const { return layouts_[bucket]; }

  Parameter& parameter(const BucketSlot& slot) const { return *parameters_[slot.parameter].parameter; }
  ElementRange owned(size_t bucket) const;
  /// The bucket that a parameter lies in.
  size_t bucket_of(const Parameter& parameter) const;
  /// All memory of a stage is on one device.
  at::Device device() const;

 private:
  std::vector<StageParameter> parameters_;
  std::vector<BucketLayout> layouts_;
  std::unordered_map<const Parameter*, size_t> bucket_of_;
  int64_t num_shards_;
  int64_t shard_;
};

/// A slot of a flat tensor, in its parameter's shape.
at::Tensor slot_view(const at::Tensor& flat, const BucketSlot& slot, at::IntArrayRef shape);

/// These elements of a flat tensor.
at::Tensor range_view(const at::Tensor& flat, const ElementRange& range);

}  // namespace weft
