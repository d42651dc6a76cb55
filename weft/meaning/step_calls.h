#pragma once

#include <vector>

#include "weft/meaning/step_load.h"
#include "weft/mesh/group_traffic.h"
#include "weft/plan/plan.h"
#include "weft/schedule/action.h"

namespace weft {

/// What one rank calls in one action of its row, in order.
struct ActionCalls {
  Action action;
  std::vector<GroupCall> calls;
};

/// The actions of a rank's row in one step, each with its inner list: exchanges of tensor, context and expert
/// parallelism, values that are gathered, gradients that are summed, rows between stages. Left out are what ranks say
/// to each other between an encoder beside the pipeline and the llm (step_routes), and the sums of all ranks when a
/// step ends. The plan must be legal.
std::vector<ActionCalls> step_calls(const Plan& plan, const StepLoad& load, int64_t rank);

}  // namespace weft
