#include "weft/search/drawn_objective.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "weft/base/units.h"
#include "weft/search/precision.h"

namespace weft {
namespace {

double mean_of(const std::vector<double>& steps_ms, size_t count) {
  return std::accumulate(steps_ms.begin(), steps_ms.begin() + static_cast<int64_t>(count), 0.0) /
         static_cast<double>(count);
}

/// Encoders are reassigned apart where some lie beside the pipeline.
bool makes_a_difference(Balance balance, const Plan& plan) {
  const bool has_beside = std::any_of(plan.modules.begin(), plan.modules.end(),
                                      [](const ModulePlan& module) { return !module.is_in_pipeline(); });
  return has_beside || balance == Balance::kNone || balance == Balance::kLlm;
}

}  // namespace

/// A plan that is far behind the best on the first batches stays behind: they are the same for both. What batches have
/// in common by chance falls with the root of their number.
bool DrawnObjective::is_hopeless(const std::vector<double>& steps_ms, double limit_ms) const {
  constexpr double kFar = 0.15;
  if (best_.steps_ms.size() < steps_ms.size()) return false;
  const double slower_than_best = limit_ms / best_.mean_ms + kFar / std::sqrt(static_cast<double>(steps_ms.size()));
  return mean_of(steps_ms, steps_ms.size()) > slower_than_best * mean_of(best_.steps_ms, steps_ms.size());
}

DrawnPrices DrawnObjective::price(const Plan& given, const DrawnLimits& limits) {
  Plan plan = given;
  const Result<Schedule> schedule = playable_schedule(plan);
  if (!schedule) return {};
  for (const MemorySplit& row : simulator_.run_mean(plan, *schedule).memory) {
    if (row.total() > plan.cluster.device.memory_gib * kGiB) return {};
  }
  ++num_priced_;
  // A plainer way is kept unless another is faster by more than this.
  constexpr double kHair = 1e-4;
  DrawnPrices prices;
  std::vector<DrawnPrice>& found = prices.found;
  const SampleWork work(plan, simulator_.costs());
  for (const Balance balance : kBalancesByPlainness) {
    const bool is_allowed = std::find(balances_.begin(), balances_.end(), balance) != balances_.end();
    if (!is_allowed || !makes_a_difference(balance, plan)) continue;
    plan.balance = balance;
    double below_ms = balance == Balance::kNone ? limits.in_order_ms : limits.reassigned_ms;
    if (!found.empty()) below_ms = std::min(below_ms, found.back().mean_ms * (1 - kHair));
    DrawnPrice price{.balance = balance};
    bool is_slower = false;
    for (int64_t b = 0; b < batches_ && !is_slower; ++b) {
      if (limits.deadline.is_over()) {
        prices.is_cut_short = true;
        return prices;
      }
      price.steps_ms.push_back(simulator_.run_drawn(plan, *schedule, work, samples_.batch(b)));
      is_slower = is_hopeless(price.steps_ms, below_ms);
    }
    if (is_slower) continue;
    price.mean_ms = mean_of(price.steps_ms, price.steps_ms.size());
    if (price.mean_ms >= below_ms) continue;
    // Ways of reassigning are as simple as each other.
    if (!found.empty() && found.back().balance != Balance::kNone) found.pop_back();
    found.push_back(std::move(price));
  }
  if (!found.empty() && (best_.steps_ms.empty() || found.back().mean_ms < best_.mean_ms)) best_ = found.back();
  return prices;
}

void DrawnObjective::extend(const Plan& plan, int64_t batches, std::vector<double>& steps_ms) {
  const Result<Schedule> schedule = playable_schedule(plan);
  const SampleWork work(plan, simulator_.costs());
  for (auto b = static_cast<int64_t>(steps_ms.size()); b < batches; ++b)
    steps_ms.push_back(simulator_.run_drawn(plan, *schedule, work, samples_.batch(b)));
}

}  // namespace weft
