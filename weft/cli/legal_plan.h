#pragma once

#include <string>

#include "weft/base/result.h"
#include "weft/meaning/check.h"
#include "weft/plan/plan.h"

namespace weft {

/// A plan from a file. What there is to note of it goes to standard error.
Result<Plan> read_noted_plan(const std::string& path);

/// The same, with the error that shows every violation where it is not legal for that use.
Result<Plan> read_legal_plan(const std::string& path, PlanUse use = PlanUse::kTrain);

/// The same with the rules about trained weights that a training configuration adds to it.
Result<Plan> read_trained_plan(const std::string& path, const std::string& config);

}  // namespace weft
