#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "weft/layers/parameter.h"

namespace weft {

/// Elements of a bucket: [begin, end).
struct ElementRange {
  int64_t begin = 0;
  int64_t end = 0;

  int64_t size() const { return end - begin; }
  bool operator==(const ElementRange&) const = default;
};

/// What two ranges have in common; empty where that is nothing.
ElementRange common(const ElementRange& a, const ElementRange& b);
ElementRange shifted(const ElementRange& range, int64_t by);

/// A parameter of a stage, with a number that keeps its bucket apart from others': a block's, so that ZeRO 3 can gather
/// block by block, or anything else.
struct StageParameter {
  ParameterPtr parameter;
  int64_t kind = 0;
};

/// Where a parameter lies in its bucket.
struct BucketSlot {
  size_t parameter = 0;  ///< its place among the stage's
  ElementRange elements;
};

/// Parameters that are communicated and updated together. Between and after them is padding, which is always zero.
struct BucketLayout {
  std::vector<BucketSlot> slots;
  int64_t num_elements = 0;  ///< with padding
  int64_t kind = 0;
  bool is_trained = false;
  bool has_decay = false;
};

struct BucketOptions {
  int64_t max_bytes = 64'000'000;  ///< of gradients; a larger parameter has a bucket of its own
  at::ScalarType gradient_type = at::kFloat;
  int64_t num_shards = 1;  ///< every bucket divides evenly into so many
  int64_t alignment = 64;  ///< parameters and shards begin at multiples of so many elements
  std::function<bool(const Parameter&)> has_decay = [](const Parameter& p) { return p.value.dim() >= 2; };
};

/// Puts every parameter into one bucket. Parameters come in reverse order, and so do the buckets that they complete:
/// about the order in which a backward has their gradients ready.
std::vector<BucketLayout> lay_out_buckets(const std::vector<StageParameter>& parameters, const BucketOptions& options);

}  // namespace weft
