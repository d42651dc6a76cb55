#pragma once

#include <map>
#include <vector>

#include "weft/comm/group.h"
#include "weft/meaning/routers.h"
#include "weft/schedule/step_metrics.h"

namespace weft {

/// By stage and router there: rows of this rank that chose each expert.
using ExpertRows = std::map<int32_t, std::vector<std::vector<int64_t>>>;

/// The load of a step's experts, from the rows and the moved bytes that every rank of the group counts. Ranks that
/// route the same rows count them once.
ExpertLoad sum_expert_rows(const Routers& routers, const ExpertRows& rows, int64_t moved_bytes, Group& everyone);

}  // namespace weft
