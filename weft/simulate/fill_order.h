#pragma once

#include <optional>

#include "weft/simulate/plan_simulator.h"

namespace weft {

/// The times from which orders in bubbles are made: of computing alone, without transfers and collectives.
StageDurations compute_durations(const PlanCosts& costs);
/// The same for encoders, as `placements` take them; both are by encoder of the plan that is not inline.
void add_compute_durations(const PlanCosts& costs, std::vector<EncoderPlacement>& placements);

/// Gives the encoders of a plan that fill bubbles their order, from compute times alone, and stores it in the plan; a
/// plan in which none fills stays as it is. Their live_macro_batches rise to the least that the pipeline's order needs.
/// The error names the plan's field.
std::optional<Error> store_fill_order(PlanSimulator& simulator, Plan& plan);

}  // namespace weft
