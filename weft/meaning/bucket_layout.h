#pragma once

#include <cstdint>
#include <vector>

#include "weft/spec/precision.h"

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

/// A weight of a stage. Only weights of one bundle share a bucket: those of a block, so that ZeRO 3 can gather block by
/// block, or of several blocks.
struct BucketWeight {
  int64_t elements = 0;
  int64_t bundle = 0;
  bool is_trained = false;
  bool has_decay = false;
};

/// Where a weight lies in its bucket.
struct BucketSlot {
  size_t parameter = 0;  ///< its place among the stage's
  ElementRange elements;
};

/// Weights that are communicated and updated together. Between and after them is padding, which is always zero.
struct BucketLayout {
  std::vector<BucketSlot> slots;
  int64_t num_elements = 0;  ///< with padding
  int64_t bundle = 0;
  bool is_trained = false;
  bool has_decay = false;
};

/// Weights and shards begin at multiples of so many elements.
inline constexpr int64_t kBucketAlignment = 64;

struct BucketRules {
  int64_t max_elements = 16'000'000;  ///< a larger weight has a bucket of its own
  int64_t num_shards = 1;             ///< every bucket divides evenly into so many
  int64_t alignment = kBucketAlignment;
};

/// How many gradients, of the precision in which they are summed, make a bucket full.
int64_t bucket_elements(double buckets_mb, double gradient_bytes);

/// The buckets of plans that are searched for, where gradients are summed over so many ranks. Each bucket pays a ring's
/// hops, so that every hop should carry enough: a million elements of fp32, as in Megatron-LM.
double searched_buckets_mb(int64_t num_ranks);

/// Puts every weight into one bucket. Weights come in reverse order, and so do the buckets that they complete: about
/// the order in which a backward has their gradients ready.
std::vector<BucketLayout> lay_out_buckets(const std::vector<BucketWeight>& weights, const BucketRules& rules);

/// The bundle of each block of a stage, from the elements of each. With ZeRO 3, which gathers blocks one by one, every
/// block is a bundle; with ZeRO 2, as many as fill a bucket, so that no bucket waits for the gradients of a later
/// block.
std::vector<int64_t> bundles_of_blocks(const std::vector<int64_t>& elements, int64_t zero, double most_elements);

}  // namespace weft
