#pragma once

#include <optional>

#include "weft/plan/plan.h"
#include "weft/simulate/plan_simulator.h"

namespace weft {

/// Where a plan needs too much memory because of one encoder's macro batches: which, and the nearest setting that fits.
/// Nothing where no change to one encoder alone would do.
std::optional<Error> explain_encoder_memory(const Plan& plan, const PlanReport& report, const SimulateOptions& how);

}  // namespace weft
