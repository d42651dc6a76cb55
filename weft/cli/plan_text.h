#pragma once

#include <string>

#include "weft/base/json.h"
#include "weft/search/explain_plan.h"
#include "weft/search/plan_search.h"

namespace weft {

/// "llm layers by pipeline rank: 10 (2 recomputed), 11".
std::string layers_text(const Plan& plan);

/// What became of the candidates, and how sure the answer is.
std::string search_text(const PlanSearchResult& result);

/// The best plans side by side.
std::string comparison_text(const std::vector<FoundPlan>& best);

std::string to_text(const Explanation& explanation);
Json to_json(const Explanation& explanation);
Json to_json(const SearchCounts& counts);

}  // namespace weft
