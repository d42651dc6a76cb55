#pragma once

#include <optional>

#include "weft/schedule/validate.h"

namespace weft {

/// What is wrong with where encoders' rows and gradients are sent and received, to and from the llm and between the
/// stages of an encoder's own pipeline, and with how encoders end their step.
/// Every rank has its transfers once, after what makes them and before what reads them, in the same order at both ends.
/// A schedule that is not lowered has none. Encoders' EF and EB have been judged before.
std::optional<ScheduleProblem> find_row_transfer_problem(const Schedule& schedule, bool is_lowered);

}  // namespace weft
