#pragma once

#include <ATen/core/Tensor.h>

#include "weft/comm/group.h"
#include "weft/mesh/own_route.h"

namespace weft {

/// Brings rows [held, width] of every rank of a group to where they are needed, in one all-to-all of exactly the
/// route's messages, and returns this rank's [needed, width]; a row that nobody holds is zero. Differentiable:
/// gradients go `back`, the route from who needs rows to who holds them. Copies of a row are taken to have equal
/// gradients, of which every holder gets one.
///
/// All ranks of the group call it alike, also without rows, and so they do with its backward. Rows must therefore
/// require a gradient on all ranks or on none, and what is returned must reach the loss on all of them, where it has
/// no rows, too.
at::Tensor exchange_rows(const at::Tensor& rows, const Group& group, const OwnRoute& route, const OwnRoute& back);

}  // namespace weft
