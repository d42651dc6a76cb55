#include "weft/search/drawn_race.h"

#include <algorithm>

#include "weft/simulate/step_spread.h"

namespace weft {
namespace {

/// A difference that matters little, as a share of the step.
constexpr double kLittle = 0.0025;

/// By how much a plan is slower than another on the same batches.
struct Difference {
  double mean_ms = 0;
  double error_ms = 0;
};

Difference difference(const FoundPlan& plan, const FoundPlan& than) {
  std::vector<double> by_batch;
  for (size_t b = 0; b < plan.steps_ms.size(); ++b) by_batch.push_back(plan.steps_ms[b] - than.steps_ms[b]);
  const StepSpread spread = spread_of(std::move(by_batch));
  return {.mean_ms = spread.mean_ms, .error_ms = spread.error_ms};
}

void sort_by_mean(std::vector<FoundPlan>& best) {
  for (FoundPlan& found : best) found.step_time_ms = spread_of(found.steps_ms).mean_ms;
  std::stable_sort(best.begin(), best.end(),
                   [](const FoundPlan& a, const FoundPlan& b) { return a.step_time_ms < b.step_time_ms; });
}

}  // namespace

int64_t race(DrawnObjective& objective, size_t keep, const Deadline& deadline, std::vector<FoundPlan>& best) {
  sort_by_mean(best);
  auto batches = std::ssize(best.front().steps_ms);
  while (batches < kMostRaceBatches && !deadline.is_over()) {
    // Those that are surely slower leave; the rest may still be first.
    bool is_open = false;
    const FoundPlan& first = best.front();
    for (size_t i = best.size() - 1; i > 0; --i) {
      const Difference slower = difference(best[i], first);
      const bool is_sure = slower.mean_ms > slower.error_ms;
      if (is_sure && i >= keep) best.erase(best.begin() + static_cast<std::ptrdiff_t>(i));
      is_open |= !is_sure && slower.mean_ms + slower.error_ms > kLittle * first.step_time_ms;
    }
    const bool is_known = spread_of(first.steps_ms).error_ms <= 2 * kLittle * first.step_time_ms;
    if (!is_open && is_known) break;
    batches = std::min(2 * batches, kMostRaceBatches);
    for (FoundPlan& found : best) objective.extend(found.plan, batches, found.steps_ms);
    sort_by_mean(best);
  }
  return batches;
}

}  // namespace weft
