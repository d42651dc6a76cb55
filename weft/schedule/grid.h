#pragma once

#include <string>

#include "weft/schedule/schedule.h"

namespace weft {

/// A few actions of every row side by side, the rows aligned at the given position of one of them, which is marked.
std::string row_grid(const Schedule& schedule, int32_t marked_rank, size_t marked_position);

}  // namespace weft
