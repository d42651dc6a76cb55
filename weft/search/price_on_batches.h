#pragma once

#include "weft/search/plan_search.h"

namespace weft {

/// How many of the plans that are fastest for the mean batch are priced on drawn batches.
inline constexpr size_t kPricedOnBatches = 32;

/// Orders the best by their mean step over drawn batches, the same for all.
Result<PlanSearchResult> price_on_batches(PlanSearchResult result, const PlanSearchOptions& options);

}  // namespace weft
