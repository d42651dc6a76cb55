#pragma once

#include <string>

#include <fmt/format.h>

#include "weft/base/counted.h"
#include "weft/base/units.h"
#include "weft/plan/plan.h"
#include "weft/simulate/plan_report.h"

namespace weft {

/// What stands over the picture of a plan's step, which shows the mean batch.
inline std::string picture_title(const Plan& plan, const PlanReport& report) {
  return fmt::format("{} on {} of {}: step {:.1f} ms, bubble {}", plan.model.name, counted(plan.world_size, "device"),
                     plan.cluster.name, report.mean_batch_step_time_ms, format_percent(report.bubble_fraction));
}

}  // namespace weft
