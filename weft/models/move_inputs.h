#pragma once

#include <ATen/core/Tensor.h>

namespace weft {

/// On a device, in a type. Nobody waits for what a GPU can read by itself; it must stay until the step is over.
inline at::Tensor moved_to(const at::Tensor& tensor, const at::TensorOptions& options) {
  const bool goes_on = !options.device().is_cpu() && tensor.device().is_cpu() && tensor.is_pinned();
  return tensor.to(options, /*non_blocking=*/goes_on);
}

}  // namespace weft
