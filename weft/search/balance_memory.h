#pragma once

#include <vector>

#include "weft/search/chain_search.h"

namespace weft {

/// Per stage, the most microbatches that it holds at once.
std::vector<int32_t> most_in_flight(const Schedule& schedule);

/// The memory of each rank at each of its peaks, as rows without a limit.
std::vector<ChainRow> memory_rows(const Schedule& schedule);

/// The peak memory of each rank.
std::vector<double> memory_of_ranks(const Schedule& schedule, const StageOptions& options, const Chain& chain);

struct NoPlacement {
  bool is_proven = false;  ///< nothing fits; otherwise the time was too short to know
  ChainSearch::Clock::time_point deadline;
};

/// Why no placement was found, and which memory limit or pp would do.
Error explain_no_placement(const BalanceCosts& costs, const Schedule& schedule, const NoPlacement& known);

}  // namespace weft
