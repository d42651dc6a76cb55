#include "weft/search/plan_pricer.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "weft/base/units.h"
#include "weft/meaning/check.h"
#include "weft/meaning/plan_schedule.h"
#include "weft/simulate/fill_order.h"

namespace weft {

std::optional<PlanPrice> PlanPricer::price(Plan& plan, const PlanPrice* rival, double slack, double most_excess_gib) {
  if (store_fill_order(simulator_, plan) || !check_plan(plan, PlanUse::kPrice).empty()) return std::nullopt;
  const Result<Schedule> schedule = playable_schedule(plan);
  if (!schedule) return std::nullopt;
  ++num_priced_;
  const MeanStep mean = simulator_.run_mean(plan, *schedule);
  double most_bytes = 0;
  for (const MemorySplit& row : mean.memory) most_bytes = std::max(most_bytes, row.total());
  PlanPrice price{.step_ms = mean.step_time_ms, .excess_gib = most_bytes / kGiB - plan.cluster.device.memory_gib};
  if (price.excess_gib > most_excess_gib) return std::nullopt;
  if (batches_ == 0) {
    if (rival != nullptr && price.step_ms >= slack * rival->step_ms) return std::nullopt;
    return price;
  }
  // What a batch adds by chance is small beside this; it falls with the root of their number.
  constexpr double kFar = 0.05;
  const SampleWork work(plan, simulator_.costs());
  double sum_ms = 0, rival_ms = 0;
  for (int64_t b = 0; b < batches_; ++b) {
    sum_ms += price.steps_ms.emplace_back(simulator_.run_drawn(plan, *schedule, work, samples_.batch(b)));
    if (rival == nullptr) continue;
    rival_ms += rival->steps_ms[static_cast<size_t>(b)];
    const bool is_last = b + 1 == batches_;
    const double far = is_last ? 0 : kFar / std::sqrt(static_cast<double>(b + 1));
    if (sum_ms >= (slack + far) * rival_ms) return std::nullopt;
  }
  price.step_ms = sum_ms / static_cast<double>(batches_);
  return price;
}

}  // namespace weft
