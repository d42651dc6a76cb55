#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "weft/base/error.h"
#include "weft/plan/plan.h"

namespace weft {

/// One reason why a plan is not legal: the field's path, and a sentence with the arithmetic.
struct Violation {
  std::string field;
  std::string message;

  bool operator==(const Violation&) const = default;
};

/// Everything that is wrong with a plan, in one go: products, divisibility, layer sums, rank coverage, and whether its
/// schedule can run. Memory is not judged here: that needs costs.
std::vector<Violation> check_plan(const Plan& plan);

/// Violations, at least one, as the error that a user reads; where there are several, the verdict ("are not legal") is
/// said of all and each has a line below. The source is the caller's to add.
Error to_error(const std::vector<Violation>& violations, std::string_view verdict);

}  // namespace weft
