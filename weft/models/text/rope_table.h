#pragma once

#include "weft/layers/rotary.h"
#include "weft/models/numbers.h"

namespace weft {

/// The frequency of every pair of a head's elements, in fp32 as all implementations have them.
at::Tensor rope_frequencies(const RopeNumbers& rope, int64_t head_dim);

/// Cosines and sines for positions [axes, rows], where axes is 1 or, with sections, 3. Angles are fp32 whatever the
/// type, as the models were trained so.
RotaryTable rope_table(const RopeNumbers& rope, const at::Tensor& frequencies, const at::Tensor& positions,
                       at::ScalarType type);

}  // namespace weft
