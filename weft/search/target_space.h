#pragma once

#include "weft/search/plan_space.h"

namespace weft {

/// The part of a space that a system's settings can express, value by value; the search judges the rest plan by plan.
/// An error where nothing of it is left, whatever the cluster.
Result<PlanSpace> space_for(Target target, const PlanSpace& space, const Model& model);

}  // namespace weft
