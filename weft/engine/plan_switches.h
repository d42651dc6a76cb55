#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "weft/base/error.h"
#include "weft/data/sample_costs.h"
#include "weft/plan/plan.h"

namespace weft {

class SharedBatches;
struct TrainConfig;

/// A plan that a run is to go on by.
struct PlanSwitch {
  Plan plan;
  SampleCosts costs;
};

/// Why a run cannot go on by another plan without a disk; nothing where it can.
std::optional<Error> check_switch(const Plan& running, const Plan& next, const TrainConfig& config,
                                  const SampleCosts& costs);

/// What a run was asked to go on by, and what the ranks of one process share of it. Any thread may call.
class PlanSwitches {
 public:
  /// The last that was asked for counts.
  void ask(Plan plan, SampleCosts costs);
  /// What was asked for, once.
  std::shared_ptr<const PlanSwitch> take();
  /// What was taken last, for the other ranks of the process that has it.
  std::shared_ptr<const PlanSwitch> taken() const;

  /// The batches of the plan after so many switches, prepared by so many threads.
  std::shared_ptr<SharedBatches> batches_after(int64_t num_switches, int64_t num_threads);

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<const PlanSwitch> asked_;
  std::shared_ptr<const PlanSwitch> taken_;
  std::map<int64_t, std::shared_ptr<SharedBatches>> batches_;
};

}  // namespace weft
