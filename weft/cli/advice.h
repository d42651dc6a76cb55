#pragma once

#include <optional>
#include <string>

#include "weft/search/plan_changes.h"
#include "weft/search/plan_search.h"

namespace weft {

struct AdviceOptions {
  std::optional<Target> system;  ///< whose settings the better plan must be written in
  PlanSearchOptions search;
  PlanSpace space = {};
  bool needs_settings = false;  ///< of the system: a plan that has none is no answer, however fast it is
};

/// A plan, and the best that was found for the same model, cluster and batch: the one that the search chooses, or,
/// where that is no faster than the plan, the fastest.
struct Advice {
  Plan before, after;
  PlanReport before_report, after_report;
  std::vector<PlanChange> changes;
  std::optional<Error> has_no_settings = {};  ///< why the system has none for the plan, where it needs some
  bool is_better = false;
  bool is_optimal = false;

  const Plan& answer() const { return is_better ? after : before; }
};

/// Simulates the plan, searches, and goes from one to the other change by change.
Result<Advice> advise(const Plan& plan, const AdviceOptions& options);

/// Nothing to start from: only what the search finds.
Result<Advice> advise_search(const Plan& problem, const AdviceOptions& options);

/// Both side by side, and which change gives how much.
std::string to_text(const Advice& advice);
Json to_json(const Advice& advice);

}  // namespace weft
