#pragma once

#include <ATen/core/Tensor.h>

namespace weft {

/// The sum over rows of the cross entropy between a row's logits and its target, in fp32 or better. `logits` is used
/// up: the backward turns it into its gradient in place, so it must be a fresh value that nothing else keeps.
at::Tensor cross_entropy_sum(const at::Tensor& logits, const at::Tensor& targets);

}  // namespace weft
