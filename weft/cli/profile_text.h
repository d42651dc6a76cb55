#pragma once

#include <string>

#include "weft/base/json.h"
#include "weft/simulate/plan_report.h"

namespace weft {

/// What was measured, what was read between measurements and how surely, and what came from formulas: a few lines.
/// Nothing without a profile.
std::string profile_text(const PlanReport& report);
Json profile_json(const ProfileUse& use);

}  // namespace weft
