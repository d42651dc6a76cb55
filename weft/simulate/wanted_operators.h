#pragma once

#include <vector>

#include "weft/profile/profile.h"

namespace weft {

/// Parts of operators that pricing these blocks of a user's own program asks for, by the strategy that the model has
/// and by any other: of the model's own choices first. Operators that communicate inside are run on their ranks, as far
/// as the machine has so many.
std::vector<OperatorCase> wanted_operators(const Model& model, const std::vector<BlockShape>& shapes);

}  // namespace weft
