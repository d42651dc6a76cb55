#pragma once

#include <string>
#include <vector>

#include "weft/search/plan_search.h"

namespace weft {

/// The place of the simplest plan that is slower than the fastest by a share of `within` at most; of equally simple
/// ones the fastest. Plans are fastest first, and there is one.
size_t choose_plan(const std::vector<FoundPlan>& plans, double within);

/// Why a plan is simpler than another: "it needs no context parallelism, ZeRO 1 instead of 3, and exports to megatron".
std::string why_chosen(const FoundPlan& chosen, const FoundPlan& fastest);

}  // namespace weft
