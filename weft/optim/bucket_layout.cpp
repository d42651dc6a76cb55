#include "weft/optim/bucket_layout.h"

#include <c10/core/ScalarType.h>

namespace weft {

std::vector<BucketLayout> lay_out_buckets(const std::vector<StageParameter>& parameters, const BucketOptions& options) {
  std::vector<BucketWeight> weights;
  for (const auto& [parameter, bundle] : parameters) {
    const bool is_trained = parameter->is_trainable();
    weights.push_back({.elements = parameter->value.numel(),
                       .bundle = bundle,
                       .is_trained = is_trained,
                       .has_decay = is_trained && options.has_decay(*parameter)});
  }
  const auto gradient_bytes = static_cast<int64_t>(c10::elementSize(options.gradient_type));
  return lay_out_buckets(weights, {.max_elements = options.max_bytes / gradient_bytes,
                                   .num_shards = options.num_shards,
                                   .alignment = options.alignment});
}

}  // namespace weft
