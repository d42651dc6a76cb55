#pragma once

#include <limits>

#include "weft/search/deadline.h"
#include "weft/search/drawn_objective.h"
#include "weft/search/plan_search.h"

namespace weft {

/// How many of the best plans are compared on more batches than the search compares all on.
inline constexpr size_t kMostRaced = 8;
inline constexpr int64_t kMostRaceBatches = 64;
/// A difference that matters little, as a share of the step.
inline constexpr double kLittleDifference = 0.0025;

struct RaceOptions {
  size_t keep = 1;    ///< so many of the fastest stay, whatever their times
  double within = 0;  ///< and what is simpler, as long as it may be slower than the fastest by this share at most
  Deadline deadline;
  int64_t most_batches = std::numeric_limits<int64_t>::max();  ///< for which there is memory
};

/// Draws more batches for the best plans until it is sure which is fastest and which are within the margin, or that it
/// matters little. All that stay are priced on the same batches in the end, fastest first. Returns how many batches
/// that are.
int64_t race(DrawnObjective& objective, const RaceOptions& options, std::vector<FoundPlan>& best);

}  // namespace weft
