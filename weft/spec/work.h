#pragma once

#include "weft/spec/backward_needs.h"
#include "weft/spec/model.h"
#include "weft/spec/precision.h"
#include "weft/spec/segments.h"

namespace weft {

/// Floating-point operations of the forward pass that count as the model's: matrix products and attention, two for
/// each multiply-add.
double forward_flops(const Op& op, const Segments& segments);
double forward_flops(const Block& block, const Segments& segments);
double forward_flops(const Module& module, const Segments& segments);

/// FLOPs of the backward pass: the gradients of an operator's weights, and of its inputs. Attention has no weights;
/// both of its products need both inputs' gradients.
double weight_gradient_flops(const Op& op, const Segments& segments);
double input_gradient_flops(const Op& op, const Segments& segments);

/// The very first operator makes no gradient of its input, which is data.
double backward_flops(const Module& module, const Segments& segments, BackwardNeeds needs);

/// Bytes that the forward pass reads and writes when every operator is a kernel of its own and attention is fused.
double forward_traffic_bytes(const Op& op, const Segments& segments, Precision precision);
double forward_traffic_bytes(const Block& block, const Segments& segments, Precision precision);

/// Bytes kept per token of the module between a block's forward and its backward, without recomputation, with fused
/// attention and no parallelism.
double saved_bytes_per_token(const Block& block, Precision precision);
double saved_bytes_per_token(const Module& module, Precision precision);

}  // namespace weft
