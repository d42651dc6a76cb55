#pragma once

#include <string>

#include "weft/base/json.h"
#include "weft/plan/plan.h"
#include "weft/simulate/plan_report.h"

namespace weft {

/// What a simulated step came to, as tables a person can read.
std::string to_text(const Plan& plan, const PlanReport& report);
Json to_json(const PlanReport& report);
Json to_json(const StepSpread& spread);
/// Whether the cluster's efficiency was calibrated, and to what; else how far the defaults were off where they were
/// checked.
Json calibration_json(const PlanReport& report);

/// The rank that holds most, what dominates it and by how much it is over the device's memory; for messages.
std::string memory_summary(const PlanReport& report);

}  // namespace weft
