#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace weft {

// What tensors of the calling rank take on its device.

/// The peak counts from here on.
void reset_peak_memory(at::Device device);
/// In bytes, since then.
int64_t peak_memory(at::Device device);

}  // namespace weft
