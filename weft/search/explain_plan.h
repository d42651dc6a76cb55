#pragma once

#include <string>
#include <vector>

#include "weft/search/plan_advice.h"
#include "weft/simulate/plan_report.h"

namespace weft {

/// A part of a step, and how much longer it takes in another plan.
struct PartDifference {
  std::string words;  ///< "tensor-parallel communication"
  double more_ms = 0;
};

/// Where a step is longer or shorter than another. The parts add up to the difference of the two.
std::vector<PartDifference> explain_difference(const PlanReport& from, const PlanReport& to);

/// The best that could be had with one setting pinned.
struct Alternative {
  std::vector<std::string> names;     ///< the pins that lead to it: "pp 1", "schedule zb_h1", "vision inline"
  std::optional<FoundPlan> best;      ///< nothing where nothing fits
  double slower_by = 0;               ///< a share of the explained plan's step; negative where it is faster
  bool is_proven = false;             ///< of the space: nothing there with any of these pins is faster
  std::vector<PartDifference> parts;  ///< of the difference
  std::string reason;                 ///< where nothing fits
};

/// What another cluster or batch would change.
struct WhatIf {
  std::string change;             ///< "25 % more memory"
  std::optional<FoundPlan> best;  ///< that would be chosen
  double throughput_gain = 0;     ///< of the fastest plan over the fastest now, a share
  bool keeps_settings = false;
};

struct Explanation {
  std::vector<Alternative> alternatives;  ///< the nearest first, then what does not fit
  std::vector<WhatIf> what_ifs;
  double faster_by = 0;  ///< by what share the fastest plan became faster on the way
};

/// Why a plan was chosen: pins one setting after the other to its usual values, looks for the fastest plan with it, and
/// compares. Pins that lead to the same plan are one alternative. The result is the problem's own, with a chosen plan.
/// Each of these searches takes an eighth of the time limit at most, or five seconds. Where one of them finds a plan
/// that is faster than the fastest, which happens to results without a proof, it is the fastest from then on, and the
/// choice is made again.
Result<Explanation> explain_plan(const PlanProblem& problem, PlanSearchResult& result,
                                 const PlanSearchOptions& options);

}  // namespace weft
