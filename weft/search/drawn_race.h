#pragma once

#include "weft/search/deadline.h"
#include "weft/search/drawn_objective.h"
#include "weft/search/plan_search.h"

namespace weft {

/// How many of the best plans are compared on more batches than the search compares all on.
inline constexpr size_t kMostRaced = 8;
inline constexpr int64_t kMostRaceBatches = 64;

/// Draws more batches for the best plans until it is sure which is fastest, or that it matters little. All that stay
/// are priced on the same batches in the end, fastest first; `keep` of them stay, whatever their times.
/// Returns how many batches that are.
int64_t race(DrawnObjective& objective, size_t keep, const Deadline& deadline, std::vector<FoundPlan>& best);

}  // namespace weft
