#pragma once

#include "weft/plan/plan.h"
#include "weft/spec/backward_needs.h"

namespace weft {

/// Whether a step changes the weights of a module.
inline bool trains(const Plan& plan, ModuleKind module) {
  return !plan.workload.is_frozen(module);
}

/// Which gradients the backward of each block of a module makes; none: it has no backward, and keeps nothing for one.
inline BackwardNeeds backward_of(const Plan& plan, ModuleKind module) {
  return backward_needs(plan.model, plan.workload, module);
}

}  // namespace weft
