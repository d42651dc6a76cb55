#pragma once

#include <vector>

#include "weft/plan/plan.h"
#include "weft/profile/profile.h"

namespace weft {

/// What pricing this plan asks of blocks, for the mean batch and for batches drawn from its workload: as few shapes as
/// keep the error of interpolation small, in the order of the time that they account for. Layers with a strategy are
/// asked for without it, too.
Result<std::vector<BlockShape>> wanted_shapes(const Plan& plan);

}  // namespace weft
