#pragma once

#include <ATen/core/Tensor.h>

#include "weft/program/activation.h"

namespace weft {

at::Tensor activate(const at::Tensor& x, Activation activation);

/// silu(gate) · up of rows that hold gate and up side by side. Keeps only its input for the backward.
at::Tensor swiglu(const at::Tensor& gate_up);

}  // namespace weft
