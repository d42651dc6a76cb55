#pragma once

#include "weft/meaning/step_load.h"
#include "weft/mesh/group_traffic.h"
#include "weft/plan/plan.h"

namespace weft {

/// What a rank does in its groups in one training step that ends with an update: how often, and the bytes that it sends
/// and receives, as the runtime counts them (mesh/traffic.h). Groups are named as training names them; those of one
/// rank are left out. The plan must be legal.
std::vector<GroupTraffic> step_traffic(const Plan& plan, const StepLoad& load, int64_t rank);

}  // namespace weft
