#pragma once

#include "weft/base/result.h"
#include "weft/plan/plan.h"

namespace weft {

/// The plan with these rows of the llm's pipeline instead of its schedule. Blocks stay in their stages, with what they
/// recompute; stages move to the ranks whose rows run them. Encoders that fill bubbles lose their order, which held the
/// rows before. The error says how the rows do not fit the plan.
Result<Plan> with_rows(const Plan& plan, const Schedule& rows);

}  // namespace weft
