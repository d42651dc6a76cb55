#pragma once

#include <vector>

#include "weft/base/result.h"
#include "weft/plan/plan.h"
#include "weft/simulate/plan_report.h"

namespace weft {

/// What each rank of a legal plan's world holds when it holds most, for a batch of high load; idle ranks hold nothing.
/// Fails as CostModel::create does.
Result<std::vector<MemorySplit>> memory_of_ranks(const Plan& plan);

}  // namespace weft
