#pragma once

#include <string>

#include "weft/base/json.h"
#include "weft/search/explain_plan.h"
#include "weft/search/plan_search.h"
#include "weft/search/program_strategies.h"
#include "weft/simulate/plan_report.h"

namespace weft {

/// "llm layers by pipeline rank: 10 (2 recomputed), 11".
std::string layers_text(const Plan& plan);

/// What became of the candidates, how sure the answer is, and why another plan than the fastest was chosen.
std::string search_text(const PlanSearchResult& result, const StrategyGain* gain = nullptr);

/// What the plan leaves free of a device, and which systems have settings for it.
std::string headroom_text(const Plan& plan, const PlanReport& report, double memory_margin);

/// The fastest plans side by side, and the chosen one.
std::string comparison_text(const PlanSearchResult& result);

/// What it costs to keep to a system's settings, where `free` is the search without it.
std::string target_text(Target target, const FoundPlan& chosen, const PlanSearchResult& free);

/// What a strategy gained over the usual one, where the numbers come from where there is a profile, and, with
/// `explains`, what it has operators do. The report is of the plan that has it.
std::string strategy_text(const StrategyGain& gain, const PlanReport& report, bool explains);

std::string to_text(const Explanation& explanation);
Json to_json(const Explanation& explanation);
Json to_json(const SearchCounts& counts);
Json to_json(const StrategyGain& gain, const PlanReport& report);

}  // namespace weft
