#pragma once

#include <optional>

#include "weft/schedule/validate.h"

namespace weft {

/// Plays the rows with unbuffered channels: a SEND and its RECV happen together, an encoder action on the ranks of its
/// group together, everything else when its inputs exist. The first rank that waits for ever. The schedule must have no
/// other problem.
std::optional<ScheduleProblem> find_deadlock(const Schedule& schedule);

}  // namespace weft
