#pragma once

#include <cstdint>

#include "weft/plan/plan.h"

namespace weft {

// Experts are either cut by tensor parallelism, like every other weight, and shared out by ep neighbours among the
// joined cp and dp axes; or whole, and shared out by ep neighbours among the joined tp, cp and dp axes. Then every
// tensor-parallel rank routes the rows that sequence parallelism gives it.

/// The ranks of one pipeline stage that ep divides.
inline int64_t num_expert_ranks(const ModulePlan& module) {
  return (module.experts_over_tp ? module.tp : 1) * module.cp * module.dp;
}

/// How many ranks have the same experts.
inline int64_t num_expert_copies(const ModulePlan& module) {
  return num_expert_ranks(module) / module.ep;
}

}  // namespace weft
