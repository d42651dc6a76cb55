#pragma once

#include <string>

#include "weft/base/result.h"
#include "weft/plan/plan.h"

namespace weft {

/// A plan from a file, with the error that shows every violation where it is not legal.
Result<Plan> read_legal_plan(const std::string& path);

}  // namespace weft
