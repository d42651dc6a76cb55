#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "weft/layers/parameter.h"
#include "weft/meaning/bucket_layout.h"

namespace weft {

/// A parameter of a stage, with a number that keeps its bucket apart from others': a block's, so that ZeRO 3 can gather
/// block by block, or anything else.
struct StageParameter {
  ParameterPtr parameter;
  int64_t kind = 0;
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
