#pragma once

#include "weft/layers/activation.h"
#include "weft/layers/parameter.h"
#include "weft/layers/run_context.h"

namespace weft {

/// x · weightᵀ + bias, for rows x. The gradient of x comes with the backward; those of weight and bias too, or later
/// if the context defers them. Both bias and its absence are allowed.
at::Tensor linear(const at::Tensor& x, const ParameterPtr& weight, const ParameterPtr& bias, const RunContext& context);

/// Rows as they are before a product, once they are whole: picked or merged. No layout changes in it.
using ArrangeRows = std::function<at::Tensor(const at::Tensor& whole)>;
/// The same for rows as between blocks, which become whole first, the input of a weight that is cut by columns. Where
/// ranks have divided the rows, each keeps its own and gathers all again when the weight's gradient is made: a
/// collective call in the backward or, if the context defers it, later, so ranks must run deferred gradients in the
/// same order.
at::Tensor entered_linear(const at::Tensor& x, const ParameterPtr& weight, const ParameterPtr& bias,
                          const RunContext& context, const ArrangeRows& arrange = {});

/// The summands of weights that are cut by rows become rows as between blocks. A bias is added once, when those of all
/// ranks came together and this rank's is let go of.
at::Tensor leave_with_bias(at::Tensor summand, const ParameterPtr& bias, const RunContext& context);

/// linear(activation(wide)). Where a device has kernels for that, `wide` is all that is kept, and what the activation
/// gives is made again with its gradient.
at::Tensor activated_linear(const at::Tensor& wide, const MlpActivation& activation, const ParameterPtr& weight,
                            const ParameterPtr& bias, const RunContext& context);

/// x + bias, for rows x.
at::Tensor add_bias(const at::Tensor& x, const ParameterPtr& bias);

}  // namespace weft
