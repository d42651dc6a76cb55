#include "weft/search/best_plans.h"

#include <algorithm>
#include <utility>

namespace weft {

double BestPlans::limit_ms() const {
  return std::min(probed_ms_, has_all() ? best_.back().step_time_ms * (1 - kPrecision) : kInfinity);
}

const FoundPlan* BestPlans::fastest() const {
  if (!best_.empty()) return &best_.front();
  return probed_.empty() ? nullptr : &probed_.front();
}

void BestPlans::offer(FoundPlan found) {
  if (found.step_time_ms < limit_ms()) insert(std::move(found));
}

void BestPlans::insert(FoundPlan found) {
  const auto same = std::find_if(best_.begin(), best_.end(),
                                 [&](const FoundPlan& other) { return other.candidate == found.candidate; });
  if (same != best_.end()) {
    if (same->step_time_ms <= found.step_time_ms) return;
    best_.erase(same);
  }
  const auto place = std::upper_bound(best_.begin(), best_.end(), found.step_time_ms,
                                      [](double ms, const FoundPlan& other) { return ms < other.step_time_ms; });
  best_.insert(place, std::move(found));
  if (best_.size() > most_) best_.pop_back();
}

void BestPlans::end_probing() {
  // A little more than they take, because solvers look for what is better than a limit by more than rounding.
  if (has_all()) probed_ms_ = best_.back().step_time_ms * (1 + 4 * kPrecision);
  probed_ = std::exchange(best_, {});
}

bool BestPlans::restore_missing() {
  bool is_any_missing = false;
  for (FoundPlan& found : std::exchange(probed_, {})) {
    const bool is_there = std::any_of(best_.begin(), best_.end(), [&](const FoundPlan& other) {
      return other.candidate == found.candidate && other.step_time_ms <= found.step_time_ms * (1 + kPrecision);
    });
    const bool is_wanted = !has_all() || found.step_time_ms < best_.back().step_time_ms * (1 - kPrecision);
    if (!is_wanted || is_there) continue;
    is_any_missing = true;
    insert(std::move(found));
  }
  return is_any_missing;
}

}  // namespace weft
