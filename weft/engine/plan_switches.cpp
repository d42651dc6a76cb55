#include "weft/engine/plan_switches.h"

#include <fmt/format.h>

#include "weft/engine/resumed_run.h"
#include "weft/engine/same_model.h"
#include "weft/engine/shared_batches.h"
#include "weft/meaning/check.h"

namespace weft {

std::optional<Error> check_switch(const Plan& running, const Plan& next, const TrainConfig& config,
                                  const SampleCosts& costs) {
  if (const std::vector<Violation> violations = check_plan(next); !violations.empty())
    return to_error(violations, "are not legal");
  if (next.world_size != running.world_size) {
    return Error{.field = "world_size",
                 .problem = fmt::format("is {}, but {} ranks are running", next.world_size, running.world_size),
                 .advice = "Save a checkpoint, and resume it with the other number of ranks."};
  }
  if (auto error = check_same_model(running.model, "the run", next.model)) return error;
  if (auto error = check_samples_of(running, next, config, "the running plan")) return error;
  if (next.balance != Balance::kNone && !costs.is_given()) {
    return Error{.field = "balance",
                 .problem = "is not none, but there are no costs to balance by",
                 .advice = "Give costs, or a plan without it."};
  }
  return std::nullopt;
}

void PlanSwitches::ask(Plan plan, SampleCosts costs) {
  const std::lock_guard lock(mutex_);
  asked_ = std::make_shared<const PlanSwitch>(PlanSwitch{std::move(plan), std::move(costs)});
}

std::shared_ptr<const PlanSwitch> PlanSwitches::take() {
  const std::lock_guard lock(mutex_);
  if (asked_)
    taken_ = std::move(asked_);
  else
    return nullptr;
  asked_ = nullptr;
  return taken_;
}

std::shared_ptr<const PlanSwitch> PlanSwitches::taken() const {
  const std::lock_guard lock(mutex_);
  return taken_;
}

std::shared_ptr<SharedBatches> PlanSwitches::batches_after(int64_t num_switches, int64_t num_threads) {
  const std::lock_guard lock(mutex_);
  // Ranks are at most one switch apart.
  batches_.erase(batches_.begin(), batches_.lower_bound(num_switches - 1));
  std::shared_ptr<SharedBatches>& batches = batches_[num_switches];
  if (!batches) batches = std::make_shared<SharedBatches>(num_threads);
  return batches;
}

}  // namespace weft
