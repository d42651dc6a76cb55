#pragma once

#include <vector>

#include "weft/meaning/violation.h"
#include "weft/plan/plan.h"

namespace weft {

/// What a plan says and training would pass over: promises that nobody keeps.
std::vector<Violation> find_unobeyed(const Plan& plan);

}  // namespace weft
