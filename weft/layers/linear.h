#pragma once

#include "weft/layers/parameter.h"
#include "weft/layers/run_context.h"

namespace weft {

/// x · weightᵀ + bias, for rows x. The gradient of x comes with the backward; those of weight and bias too, or later
/// if the context defers them. Both bias and its absence are allowed.
at::Tensor linear(const at::Tensor& x, const ParameterPtr& weight, const ParameterPtr& bias, const RunContext& context);

/// x + bias, for rows x.
at::Tensor add_bias(const at::Tensor& x, const ParameterPtr& bias);

}  // namespace weft
