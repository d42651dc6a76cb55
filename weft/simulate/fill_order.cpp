#include "weft/simulate/fill_order.h"

#include <algorithm>

#include "weft/meaning/plan_schedule.h"

namespace weft {
namespace {

bool fills(const ModulePlan& module) {
  return !module.is_in_pipeline() && module.form == EncoderForm::kFill;
}

Result<Schedule> filled_schedule(PlanSimulator& simulator, Plan& plan) {
  WEFT_TRY(const Schedule pipeline, pipeline_schedule(plan));
  WEFT_TRY(const std::vector<EncoderPlacement> given, encoder_placements(plan));
  const PlanCosts& costs = simulator.price(plan);
  for (size_t e = 0; e < given.size(); ++e) {
    ModulePlan& module = plan.modules[static_cast<size_t>(costs.encoders[e].module)];
    if (!fills(module)) continue;
    module.live_macro_batches =
        std::max<int64_t>(module.live_macro_batches, least_live_macro_batches(pipeline, given[e].rows));
  }
  WEFT_TRY(std::vector<EncoderPlacement> encoders, encoder_placements(plan));
  add_compute_durations(costs, encoders);
  return place_encoders(pipeline, encoders, compute_durations(costs));
}

}  // namespace

StageDurations compute_durations(const PlanCosts& costs) {
  StageDurations durations;
  for (const StageCost& stage : costs.stages) {
    durations.forward_ms.push_back(stage.forward.compute_ms);
    durations.backward_input_ms.push_back(stage.recompute.compute_ms + stage.backward_input.compute_ms);
    durations.backward_weight_ms.push_back(stage.backward_weight.compute_ms);
  }
  return durations;
}

void add_compute_durations(const PlanCosts& costs, std::vector<EncoderPlacement>& placements) {
  for (size_t e = 0; e < placements.size(); ++e) {
    const StageCost& stage = costs.encoders[e].stages.front();
    const size_t num_groups = placements[e].rows.groups.size();
    placements[e].forward_ms.assign(num_groups, stage.forward.compute_ms);
    placements[e].backward_ms.assign(num_groups, stage.backward_input.compute_ms + stage.backward_weight.compute_ms);
  }
}

std::optional<Error> store_fill_order(PlanSimulator& simulator, Plan& plan) {
  const auto filler = std::find_if(plan.modules.begin(), plan.modules.end(), fills);
  if (filler == plan.modules.end()) return std::nullopt;
  for (ModulePlan& module : plan.modules) module.actions.clear();
  Result<Schedule> schedule = filled_schedule(simulator, plan);
  if (!schedule) return schedule.error();
  filler->actions = stored_rows(*schedule);
  return std::nullopt;
}

}  // namespace weft
