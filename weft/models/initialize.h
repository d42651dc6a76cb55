#pragma once

#include <cstdint>
#include <vector>

#include "weft/layers/parameter.h"

namespace weft {

/// Fresh weights as their families prescribe. An element depends on the seed, its weight's name and its place in the
/// weight alone, not on how many ranks hold the weight, in which parts or in which order.
void initialize_weights(const std::vector<ParameterPtr>& parameters, uint64_t seed);

/// The same for consecutive elements of one piece, from `first` of the piece on, which fill a flat tensor. Beside the
/// tensor this needs no more memory than fits in a cache.
void initialize_elements(const WeightPiece& piece, const Initialization& init, uint64_t seed, int64_t first,
                         const at::Tensor& to);

}  // namespace weft
