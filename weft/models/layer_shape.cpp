#include "weft/models/layer_shape.h"

namespace weft {

LayerShape layer_shape(const Block& block) {
  const auto& core = std::get<Attention>(op_named(block, "attention.core").shape);
  const auto& qkv = std::get<Matmul>(op_named(block, "attention.qkv").shape);
  const auto& out = std::get<Matmul>(op_named(block, "attention.out").shape);
  const Op* gate_up = find_op(block, "mlp.gate_up");
  const auto& up = std::get<Matmul>((gate_up != nullptr ? *gate_up : op_named(block, "mlp.up")).shape);
  const auto& down = std::get<Matmul>(op_named(block, "mlp.down").shape);
  const Op* router = find_op(block, "moe.router");

  LayerShape shape{.width = qkv.in,
                   .heads = {.heads = core.heads, .kv_heads = core.kv_heads, .head_dim = core.head_dim},
                   .mask = core.mask,
                   .window = core.window,
                   .norms_heads = find_op(block, "attention.q_norm") != nullptr,
                   .qkv_bias_elements = qkv.bias_elements,
                   .has_out_bias = out.bias_elements > 0,
                   .is_gated = gate_up != nullptr,
                   .has_mlp_bias = up.bias_elements > 0,
                   .intermediate = down.in};
  if (router != nullptr) {
    shape.experts = std::get<Matmul>(router->shape).out;
    shape.experts_per_token = op_named(block, "moe.dispatch").rows.numerator;
  }
  return shape;
}

}  // namespace weft
