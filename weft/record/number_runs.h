#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "weft/base/json.h"

namespace weft {

/// Whole numbers as runs of equal steps: first, count, step, and so on. Places and lengths of a batch are few runs.
Json runs_of(const std::vector<int64_t>& numbers);

/// The inverse; nothing where it is no such list, or one of more than `most` numbers.
std::optional<std::vector<int64_t>> numbers_in(const Json& runs, int64_t most);

}  // namespace weft
