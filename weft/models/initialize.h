#pragma once

#include <cstdint>
#include <vector>

#include "weft/layers/parameter.h"

namespace weft {

/// Fresh weights as their families prescribe. What a weight becomes depends on the seed and its name alone, not on how
/// many ranks hold it or in which order.
void initialize_weights(const std::vector<ParameterPtr>& parameters, uint64_t seed);

}  // namespace weft
