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

/// Why no placement was found: none fits, and which memory limit or pp would do, or the time was too short.
Error explain_no_placement(const BalanceCosts& costs, const Schedule& schedule, ChainSearch::Clock::time_point deadline);

}  // namespace weft
