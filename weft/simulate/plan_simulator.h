#pragma once

#include <memory>
#include <optional>

#include "weft/cost/cost_model.h"
#include "weft/meaning/plan_schedule.h"
#include "weft/schedule/timeline.h"
#include "weft/simulate/drawn_batch.h"
#include "weft/simulate/plan_report.h"
#include "weft/simulate/run_schedule.h"
#include "weft/simulate/walk_memory.h"

namespace weft {

/// The mean batch of a plan, played.
struct MeanStep {
  double step_time_ms = 0;
  ScheduleRun run;
  std::vector<MemorySplit> memory;  ///< by row
};

/// Prices a plan's actions, plays its schedule and walks its memory. One simulator serves all plans of one model,
/// cluster, workload and precision.
class PlanSimulator {
 public:
  /// Fails as CostModel::create does.
  static Result<PlanSimulator> create(const Plan& plan, const Profile* profile = nullptr);
  /// The same with times from elsewhere.
  static Result<PlanSimulator> create(const Plan& plan, std::unique_ptr<BlockTimes> times);

  /// `schedule` is the plan's (schedule_of), lowered, with its step's end.
  MeanStep run_mean(const Plan& plan, const Schedule& schedule, Timeline* timeline = nullptr);

  /// Only its time.
  double step_time_ms(const Plan& plan, const Schedule& schedule);

  /// One batch of samples, dealt out as the plan says. `work` is the plan's.
  double run_drawn(const Plan& plan, const Schedule& schedule, const SampleWork& work,
                   const std::vector<SampleLoad>& samples);

  /// The mean batch's costs; valid until the next call.
  const PlanCosts& price(const Plan& plan);
  CostModel& costs() { return model_; }

 private:
  explicit PlanSimulator(CostModel model) : model_(std::move(model)) {}

  CostModel model_;
  PlanCosts scratch_;
};

/// The times of a priced plan as the player takes them.
PipelineCosts pipeline_costs(const Plan& plan, const Schedule& schedule, const PlanCosts& costs);

/// What each row of the schedule holds at its peak.
std::vector<MemorySplit> memory_of_schedule_rows(const Plan& plan, const Schedule& schedule, const PlanCosts& costs);

/// Batches that are drawn where a plan does not say how many and its workload has distributions.
inline constexpr int64_t kDefaultBatches = 16;

struct SimulateOptions {
  const Profile* profile = nullptr;
  std::optional<int64_t> batches = {};  ///< instead of the plan's
  Timeline* timeline = nullptr;         ///< of the mean batch
  std::vector<double> steps_ms = {};    ///< of the first drawn batches, where these have been simulated already
};

/// Everything about a legal plan.
Result<PlanReport> simulate_plan(const Plan& plan, const SimulateOptions& options = {});

}  // namespace weft
