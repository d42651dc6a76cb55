#include "weft/search/price_on_batches.h"

#include <algorithm>

#include "weft/search/deadline.h"
#include "weft/simulate/plan_simulator.h"

namespace weft {

Result<PlanSearchResult> price_on_batches(PlanSearchResult result, const PlanSearchOptions& options) {
  result.batches = options.batches;
  result.is_optimal = false;
  const Deadline deadline(options.time_limit_s, options.stop);
  for (FoundPlan& found : result.best) {
    if (deadline.is_over() && result.priced_on_batches > 0) break;
    ++result.priced_on_batches;
    found.plan.batches = options.batches;
    WEFT_TRY(const PlanReport report, simulate_plan(found.plan, {.profile = options.profile}));
    found.step_time_ms = report.step_time_ms;
  }
  result.best.resize(static_cast<size_t>(result.priced_on_batches));
  std::stable_sort(result.best.begin(), result.best.end(),
                   [](const FoundPlan& a, const FoundPlan& b) { return a.step_time_ms < b.step_time_ms; });
  return result;
}

}  // namespace weft
