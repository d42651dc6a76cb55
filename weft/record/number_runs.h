#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "weft/base/fields.h"

namespace weft {

/// Whole numbers as runs of equal steps: first, count, step, and so on. Places and lengths of a batch are few runs.
Json runs_of(const std::vector<int64_t>& numbers);

/// How many numbers lists may have together: three of them in a file stand for any count. Below zero once a list had
/// more.
struct NumberBudget {
  int64_t left = 0;
};

/// The inverse; nothing where it is no such list, where a number is out of the range, or the budget is used up.
std::optional<std::vector<int64_t>> numbers_in(const Json& runs, IntegerRange range, NumberBudget& budget);

}  // namespace weft
