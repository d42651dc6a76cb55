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

/// The rank that holds most, what dominates it and by how much it is over the device's memory; for messages.
std::string memory_summary(const PlanReport& report);

}  // namespace weft
