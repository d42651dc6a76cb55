#pragma once

#include <vector>

#include "weft/engine/runtime_api.h"

namespace weft {

enum class NeededFor { kTraining, kEvaluation };

/// What each rank of a plan is predicted to hold, for the runtime to compare with what there is; empty for a plan that
/// the cost model cannot price. Evaluation keeps no gradients and nothing from forward to backward.
std::vector<RankNeed> predicted_needs(const Plan& plan, NeededFor what);

}  // namespace weft
