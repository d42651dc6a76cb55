#pragma once

#include "weft/search/place_pipeline.h"
#include "weft/search/plan_beside.h"

namespace weft {

// Encoders that run while the pipeline does: in its bubbles, on ranks of their own, or on some of its ranks. `works`
// are by encoder of the plan that is not inline, in its order.

/// What woven encoders add at the pipeline's ends whatever the order: the first macro batch comes before everything,
/// and the last one's backward after it where it lies on all ranks.
struct WovenEnds {
  double start_ms = 0;
  double end_ms = 0;
};
WovenEnds woven_ends(const Plan& plan, const std::vector<EncoderWork>& works);

/// The fewest live macro batches with which the pipeline's order can run every woven encoder of the plan.
int64_t least_live_of(const Plan& plan, const Schedule& pipeline);

/// Adds what encoders on the llm's ranks do in a step to what its pipeline ranks do.
void add_encoders(const Plan& plan, const std::vector<EncoderWork>& works, std::vector<double>& busy_ms);

/// What the busiest rank of a placed pipeline has to do, with its encoders, whatever the order.
double busiest_rank_ms(const Plan& plan, const PlacedPipeline& placed, const SolverShape& shape,
                       const std::vector<EncoderWork>& works);

}  // namespace weft
