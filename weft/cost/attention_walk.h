#pragma once

#include "weft/cost/walk_context.h"
#include "weft/program/op.h"

namespace weft {

/// Rotation and attention of packed rows, counted as op_walk.h counts operators.
CountedTensor walk_attention(const CountedTensor& qkv, const LocalHeads& heads, const Attention& attention,
                             bool has_rotary, const WalkContext& context);

}  // namespace weft
