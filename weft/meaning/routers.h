#pragma once

#include <vector>

#include "weft/plan/plan.h"

namespace weft {

/// The routers of a plan's llm, numbered in the order of its layers.
struct Routers {
  int64_t num_experts = 1;              ///< of the layer that has the most
  std::vector<int64_t> first_of_stage;  ///< by stage: how many come before it; at the end, all of them

  int64_t count() const { return first_of_stage.back(); }
};

Routers routers_of(const Plan& plan);

}  // namespace weft
