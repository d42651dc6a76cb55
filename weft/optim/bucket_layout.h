#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "weft/layers/parameter.h"
#include "weft/meaning/bucket_layout.h"

namespace weft {

/// A parameter of a stage, and its bundle: only parameters of one bundle share a bucket.
struct StageParameter {
  ParameterPtr parameter;
  int64_t bundle = 0;
};

struct BucketOptions {
  int64_t max_bytes = 64'000'000;  ///< of gradients; a larger parameter has a bucket of its own
  at::ScalarType gradient_type = at::kFloat;
  int64_t num_shards = 1;  ///< every bucket divides evenly into so many
  int64_t alignment = kBucketAlignment;
  std::function<bool(const Parameter&)> has_decay = [](const Parameter& p) { return p.value.dim() >= 2; };
};

std::vector<BucketLayout> lay_out_buckets(const std::vector<StageParameter>& parameters, const BucketOptions& options);

}  // namespace weft
