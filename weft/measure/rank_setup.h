#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "weft/layers/parameter.h"

namespace weft {

/// Has the calling thread compute as one of so many ranks that share the cores, or on a GPU.
void begin_rank(at::Device device, int num_cores, int64_t ranks);

/// Weights as a model begins with them, drawn on their device: products of zeros need less power, and so run faster.
void draw_weights(const std::vector<ParameterPtr>& parameters);

/// Gives a GPU's memory back that nobody uses.
void free_unused_memory(at::Device device);

}  // namespace weft
