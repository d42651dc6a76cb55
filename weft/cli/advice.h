#pragma once

#include <optional>
#include <string>

#include "weft/search/plan_changes.h"
#include "weft/search/plan_search.h"

namespace weft {

struct AdviceOptions {
  std::optional<Target> system;  ///< whose settings the better plan must be written in
  double time_limit_s = 20;
};

/// A plan, and the best that was found for the same model, cluster and batch.
struct Advice {
  Plan before, after;
  PlanReport before_report, after_report;
  std::vector<PlanChange> changes;
  bool is_better = false;
  bool is_optimal = false;
};

/// Simulates the plan, searches, and goes from one to the other change by change.
Result<Advice> advise(const Plan& plan, const AdviceOptions& options);

/// Nothing to start from: only what the search finds.
Result<Advice> advise_search(const Plan& problem, const AdviceOptions& options);

/// Both side by side, and which change gives how much.
std::string to_text(const Advice& advice);
Json to_json(const Advice& advice);

}  // namespace weft
