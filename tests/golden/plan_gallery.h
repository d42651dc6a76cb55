#pragma once

#include <string>
#include <vector>

#include "weft/plan/plan.h"
#include "weft/spec/scenario.h"

namespace weft {

struct NamedPlan {
  std::string name;
  Plan plan;
};

/// The plans of scenarios/plans, built in code: every placement, form and schedule, from one rank to 16,384.
std::vector<NamedPlan> plan_gallery(const Scenarios& scenarios);

}  // namespace weft
