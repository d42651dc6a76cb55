#pragma once

#include <functional>

#include <ATen/core/Tensor.h>

namespace weft {

/// block(x), keeping only x: the backward runs the block again. `anchor` is a tensor that needs a gradient (a weight of
/// the block), so that the backward comes by even where x needs none.
at::Tensor recomputed(const std::function<at::Tensor(const at::Tensor&)>& block, const at::Tensor& x,
                      const at::Tensor& anchor);

}  // namespace weft
