#pragma once

#include <vector>

#include "weft/profile/profile.h"
#include "weft/search/plan_space.h"

namespace weft {

/// What a search of a space asks of blocks: the shapes of the candidates that promise most by formulas, near the best
/// first. At most `most`, in the order of the time that they account for.
Result<std::vector<BlockShape>> wanted_shapes(const Model& model, const Cluster& cluster, const Workload& workload,
                                              const PlanSpace& given, size_t most = 96);

}  // namespace weft
