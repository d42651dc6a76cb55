#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace weft {

// Memory of a tensor that comes and goes while the tensor and its views stay what they are.

/// Frees it. The tensor and its views keep their shapes, and nothing may read or write them.
void free_memory(const at::Tensor& flat);

/// Has memory for the tensor again, with undefined elements.
void allocate_memory(const at::Tensor& flat);

/// How many of its elements there is memory for: all or none.
int64_t num_held(const at::Tensor& flat);

}  // namespace weft
