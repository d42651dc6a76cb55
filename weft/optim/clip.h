#pragma once

namespace weft {

/// What to multiply gradients of this norm by so that it becomes at most about `max_norm`: the factor of PyTorch's
/// clip_grad_norm_, never above 1.
double clip_factor(double max_norm, double norm);

}  // namespace weft
