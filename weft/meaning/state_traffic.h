#pragma once

#include "weft/meaning/stage_buckets.h"
#include "weft/meaning/traffic_writer.h"

namespace weft {

/// How often a step goes through a stage.
struct StagePasses {
  int64_t forwards = 0;
  int64_t backwards = 0;
};

/// Of a stage's weights that one group of ranks has the same of: sums of gradients, and values that come and go or come
/// back when a step ends.
void add_bucket_traffic(const StageContent& stage, const StageBuckets& buckets, const RankGroup& group,
                        const PrecisionPlan& precision, const StagePasses& passes, TrafficWriter& writer);

/// Gradients of what tensor-parallel ranks have the same of and see a part of the rows, or the heads, each. `buckets`
/// are those of all weights but experts.
void add_copy_traffic(const StageContent& stage, const StageBuckets& buckets, const RankGroup& tensor,
                      const RankGroup& keys, const PrecisionPlan& precision, const StagePasses& passes,
                      TrafficWriter& writer);

/// Both copies of a tied table sum what they own of its gradients.
void add_table_traffic(const StageBuckets& buckets, const RankGroup& ends, const PrecisionPlan& precision,
                       TrafficWriter& writer);

}  // namespace weft
