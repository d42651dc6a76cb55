#pragma once

#include <optional>

#include "weft/plan/plan.h"
#include "weft/schedule/schedule.h"

namespace weft {

/// The row of the plan's schedule that a rank runs: its pipeline rank's, or that of an encoder's stage where the llm is
/// elsewhere; nothing for an idle rank. The plan must be legal, and the schedule its own (schedule_of).
std::optional<int32_t> row_of_rank(const Plan& plan, const Schedule& schedule, int64_t rank);

}  // namespace weft
