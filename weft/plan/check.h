#pragma once

#include <string>
#include <vector>

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

}  // namespace weft
