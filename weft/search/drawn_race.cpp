#include "weft/search/drawn_race.h"

#include <algorithm>
#include <cmath>

#include "weft/simulate/step_spread.h"

namespace weft {
namespace {

/// By how much a plan is slower than a share of another on the same batches.
struct Difference {
  double mean_ms = 0;
  double error_ms = 0;

  bool is_surely_slower() const { return mean_ms > error_ms; }
  /// Which one is slower is not known, and the difference may be more than a little.
  bool is_open(double step_ms) const {
    return std::abs(mean_ms) <= error_ms && std::abs(mean_ms) + error_ms > kLittleDifference * step_ms;
  }
};

Difference difference(const FoundPlan& plan, const FoundPlan& than, double share = 1) {
  std::vector<double> by_batch;
  for (size_t b = 0; b < plan.steps_ms.size(); ++b) by_batch.push_back(plan.steps_ms[b] - share * than.steps_ms[b]);
  const StepSpread spread = spread_of(std::move(by_batch));
  return {.mean_ms = spread.mean_ms, .error_ms = spread.error_ms};
}

/// Whether a plan may still be first, or the choice: it is not surely beyond the margin, nor surely slower than a plan
/// that is as simple.
bool may_win(const std::vector<FoundPlan>& best, size_t index, double within) {
  const FoundPlan& plan = best[index];
  if (difference(plan, best.front(), 1 + within).is_surely_slower()) return false;
  return std::none_of(best.begin(), best.begin() + static_cast<std::ptrdiff_t>(index), [&](const FoundPlan& faster) {
    return faster.simplicity <= plan.simplicity && difference(plan, faster).is_surely_slower();
  });
}

void sort_by_mean(std::vector<FoundPlan>& best) {
  for (FoundPlan& found : best) found.step_time_ms = spread_of(found.steps_ms).mean_ms;
  std::stable_sort(best.begin(), best.end(),
                   [](const FoundPlan& a, const FoundPlan& b) { return a.step_time_ms < b.step_time_ms; });
}

/// Whether there was time for all of them.
bool extend_all(DrawnObjective& objective, const Deadline& deadline, int64_t batches, std::vector<FoundPlan>& best) {
  for (FoundPlan& found : best) {
    if (deadline.is_over()) return false;
    objective.extend(found.plan, batches, found.steps_ms);
  }
  return true;
}

}  // namespace

int64_t race(DrawnObjective& objective, const RaceOptions& options, std::vector<FoundPlan>& best) {
  sort_by_mean(best);
  auto batches = std::ssize(best.front().steps_ms);
  const int64_t most_batches = std::min(kMostRaceBatches, options.most_batches);
  while (batches < most_batches && !options.deadline.is_over()) {
    for (size_t i = best.size() - 1; i > 0; --i) {
      if (i >= options.keep && !may_win(best, i, options.within))
        best.erase(best.begin() + static_cast<std::ptrdiff_t>(i));
    }
    const FoundPlan& first = best.front();
    bool is_open = spread_of(first.steps_ms).error_ms > 2 * kLittleDifference * first.step_time_ms;
    for (size_t i = 1; i < best.size(); ++i) {
      is_open |= difference(best[i], first).is_open(first.step_time_ms);
      if (best[i].simplicity < first.simplicity)
        is_open |= difference(best[i], first, 1 + options.within).is_open(first.step_time_ms);
    }
    if (!is_open) break;
    const int64_t more = std::min(2 * batches, most_batches);
    if (extend_all(objective, options.deadline, more, best)) {
      batches = more;
    } else {
      for (FoundPlan& found : best) found.steps_ms.resize(static_cast<size_t>(batches));
    }
    sort_by_mean(best);
  }
  return batches;
}

}  // namespace weft
