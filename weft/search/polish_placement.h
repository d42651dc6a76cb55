#pragma once

#include "weft/search/deadline.h"
#include "weft/search/plan_pricer.h"
#include "weft/search/plan_search.h"

namespace weft {

/// Moves blocks between neighbouring stages of a plan with several, and changes how many a stage recomputes, one change
/// after the other, until none makes the steps that the pricer takes shorter. Layers are placed for loads that all
/// batches share; where batches differ, that is near the best placement and not the best. The order of changes is
/// fixed, and at most `most_priced` plans are priced. The plan as it was where nothing is better.
FoundPlan polish_placement(PlanPricer& pricer, const FoundPlan& found, const RecomputeSpace& recompute,
                           const Deadline& deadline, int64_t most_priced = 400);

}  // namespace weft
