#pragma once

#include <ATen/ops/tensor.h>

#include "weft/comm/group.h"
#include "weft/tensor/local_tensor.h"

namespace weft {

/// The sum of what all ranks of a group give.
inline double sum_over_ranks(Group& group, double value) {
  const at::Tensor number = at::tensor(value, at::kDouble);
  group.all_reduce(buffer_of(number), Reduction::kSum).wait();
  return number.item<double>();
}

}  // namespace weft
