#pragma once

#include <string>
#include <vector>

#include "weft/search/plan_advice.h"

namespace weft {

/// The best that could be had with one setting pinned.
struct Alternative {
  std::string name;               ///< "pp 1", "schedule zb_h1", "vision inline"
  std::optional<FoundPlan> best;  ///< nothing where nothing fits
  double slower_by = 0;           ///< a share of the best plan's step
  std::string reason;
};

/// What another cluster or batch would change.
struct WhatIf {
  std::string change;  ///< "25 % more memory"
  std::optional<FoundPlan> best;
  double throughput_gain = 0;  ///< a share
  bool keeps_settings = false;
};

struct Explanation {
  std::vector<Alternative> alternatives;  ///< the nearest first, then what does not fit
  std::vector<WhatIf> what_ifs;
};

/// Why the best plan of a space is the best: pins one setting after the other to its usual values and searches again.
/// The time limit holds for each of these searches.
Result<Explanation> explain_plan(const PlanProblem& problem, const FoundPlan& best, const PlanSearchOptions& options);

}  // namespace weft
