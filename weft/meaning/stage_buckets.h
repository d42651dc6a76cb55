#pragma once

#include <vector>

#include "weft/meaning/bucket_layout.h"
#include "weft/meaning/op_share.h"
#include "weft/meaning/stage_parts.h"
#include "weft/meaning/zero_rules.h"

namespace weft {

/// The weights of a stage on one rank that one optimizer has, and how they lie in its buckets.
struct OptimizerBuckets {
  std::vector<BucketLayout> buckets;
  std::vector<LocalWeight> weights;  ///< in the order in which slots count them
  std::vector<size_t> block_of;      ///< of each: its block
  std::vector<int64_t> kind_of;      ///< of each: its bucket's kind
  ZeroRules rules;
  int64_t num_ranks = 1;  ///< that have the same weights

  /// Elements of a bucket that a rank owns.
  int64_t owned(const BucketLayout& bucket) const {
    return rules.divides_states ? bucket.num_elements / num_ranks : bucket.num_elements;
  }
};

/// All weights of a stage on one rank.
struct StageBuckets {
  int32_t stage = 0;   ///< of its pipeline
  int32_t module = 0;  ///< of the plan, whose pipeline it is: the llm, or an encoder beside
  size_t num_blocks = 0;
  std::vector<OptimizerBuckets> optimizers;  ///< that of experts that other ranks have others of comes last
};

/// Of the stages that a rank has, in the order of the llm's stages, then of encoders beside its pipeline. The plan must
/// be legal.
std::vector<StageBuckets> stage_buckets(const Plan& plan, int64_t rank);

}  // namespace weft
