#pragma once

#include "weft/families/numbers.h"
#include "weft/layers/rotary.h"

namespace weft {

/// The frequency of every pair of a head's elements.
at::Tensor rope_frequencies(const RopeNumbers& rope, int64_t head_dim, at::ScalarType type);

/// Cosines and sines for positions [axes, rows], where axes is 1 or, with sections, 3. Everything is computed in fp32,
/// as the models were trained, or in fp64 where the model is run so.
RotaryTable rope_table(const RopeNumbers& rope, int64_t head_dim, const at::Tensor& positions, at::ScalarType type);

}  // namespace weft
