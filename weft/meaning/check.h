#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "weft/base/error.h"
#include "weft/meaning/violation.h"
#include "weft/plan/plan.h"

namespace weft {

/// What a plan is for: to be trained here, or also for other systems, which may do what training here does not.
enum class PlanUse : uint8_t { kTrain, kPrice };

/// Everything that is wrong with a plan, in one go: products, divisibility, layer sums, rank coverage, whether its
/// schedule can run and, unless it is only to be priced, what training does not obey. Memory is not judged here: that
/// needs costs.
std::vector<Violation> check_plan(const Plan& plan, PlanUse use = PlanUse::kTrain);

/// Violations, at least one, as the error that a user reads; where there are several, the verdict ("are not legal") is
/// said of all and each has a line below. The source is the caller's to add.
Error to_error(const std::vector<Violation>& violations, std::string_view verdict);

}  // namespace weft
