#pragma once

#include <cstdint>
#include <string>

#include "weft/plan/plan.h"

namespace weft {

/// A plan that may not be legal, and what makes it so.
struct ChangedPlan {
  Plan plan;
  std::string change;  ///< "llm.ep 1 -> 3"
};

/// A legal plan with one setting changed at random, to any value that a document could hold. What a change makes a plan
/// contradict besides (the batch's size, the number of ranks) follows it where it can. Only settings are changed that
/// training reads: an inline encoder's degrees, for one, are the llm's, whatever it says.
ChangedPlan changed_plan(const Plan& legal, uint64_t seed);

}  // namespace weft
