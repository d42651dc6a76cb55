#pragma once

#include <vector>

#include "weft/search/balance_costs.h"
#include "weft/search/chain_search.h"

namespace weft {

/// The moments of every rank, as memory_moments finds them.
using MomentsOfRanks = std::vector<std::vector<MemoryMoment>>;
MomentsOfRanks moments_of_ranks(const Schedule& schedule);

/// Per stage, the most microbatches that it holds at once.
std::vector<int32_t> most_in_flight(const Schedule& schedule, const MomentsOfRanks& moments);

/// The memory of each rank at each of its moments, as rows; with limits by rank, or without.
std::vector<ChainRow> memory_rows(const Schedule& schedule, const MomentsOfRanks& moments,
                                  std::span<const double> limits_gib = {});

/// The peak memory of each rank.
std::vector<double> memory_of_ranks(const Schedule& schedule, const MomentsOfRanks& moments,
                                    const StageOptions& options, const Chain& chain);

struct NoPlacement {
  bool is_proven = false;  ///< nothing fits; otherwise the time was too short to know
  Deadline deadline;
};

/// Why no placement was found, and which memory limit or pp would do.
Error explain_no_placement(const BalanceCosts& costs, const Schedule& schedule, const NoPlacement& known);

}  // namespace weft
