#pragma once

#include <cstdint>

#include "weft/mesh/expert_axes.h"
#include "weft/plan/degrees.h"

namespace weft {

// Experts are either cut by tensor parallelism, like every other weight, and shared out by ep neighbours among the
// joined cp and dp axes; or whole, and shared out by ep neighbours among the joined tp, cp and dp axes. Then every
// tensor-parallel rank routes the rows that sequence parallelism gives it.

/// The ranks of one pipeline stage that ep divides.
inline int64_t num_expert_ranks(const Degrees& module) {
  int64_t num_ranks = 1;
  for (const std::string& axis : expert_axes(module.experts_over_tp)) num_ranks *= module.degree(axis);
  return num_ranks;
}

/// How many ranks have the same experts.
inline int64_t num_expert_copies(const Degrees& module) {
  return num_expert_ranks(module) / module.ep;
}

}  // namespace weft
