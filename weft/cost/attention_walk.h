#pragma once

#include "weft/cost/walk_context.h"
#include "weft/program/op.h"

namespace weft {

/// Rotation and attention of packed rows, counted as op_walk.h counts operators.
CountedTensor walk_attention(const CountedTensor& qkv, const LocalHeads& heads, const Attention& attention,
                             bool has_rotary, const WalkContext& context);

/// Turning heads of rows in place, `width` elements of each.
void walk_rotation(int64_t rows, int64_t width, const WalkContext& context);

}  // namespace weft
