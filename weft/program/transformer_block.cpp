#include "weft/program/transformer_block.h"

namespace weft {
namespace {

void add_attention(std::vector<Op>& ops, int64_t width, const AttentionShape& shape, double dropout, double epsilon) {
  Attention a = shape.attention;
  a.dropout = dropout;
  const int64_t q = a.heads * a.head_dim;
  const int64_t kv = a.kv_heads * a.head_dim;
  ops.push_back({.name = "attention.qkv",
                 .shape = Matmul{.in = width,
                                 .out = q + 2 * kv,
                                 .bias_elements = shape.q_bias + shape.k_bias + shape.v_bias,
                                 .head_dim = a.head_dim,
                                 .heads = a.heads,
                                 .kv_heads = a.kv_heads},
                 .out = Features::kHeads,
                 .saved = {.whole = width}});
  if (shape.norms_heads || shape.norms_rows) {
    if (shape.norm_epsilon > 0) epsilon = shape.norm_epsilon;
    const int64_t q_groups = shape.norms_heads ? a.heads : 1, k_groups = shape.norms_heads ? a.kv_heads : 1;
    // Packed rows are kept whole, with the values that lie behind the keys.
    ops.push_back({.name = "attention.q_norm",
                   .shape = Norm{.width = q / q_groups, .groups = q_groups, .epsilon = epsilon},
                   .in = Features::kHeads,
                   .out = Features::kHeads,
                   .saved = {.divided = q, .divided_fp32 = q_groups}});
    ops.push_back({.name = "attention.k_norm",
                   .shape = Norm{.width = kv / k_groups, .groups = k_groups, .epsilon = epsilon},
                   .in = Features::kHeads,
                   .out = Features::kHeads,
                   .saved = {.divided = 2 * kv, .divided_fp32 = k_groups}});
  }
  if (shape.has_rotary) {
    ops.push_back({.name = "attention.rotary",
                   .shape = Pointwise{.elements_in = q + kv, .elements_out = q + kv},
                   .in = Features::kHeads,
                   .out = Features::kHeads});
  }
  // Fused attention keeps query, key, value, its output (which the projection needs too) and one log-sum a head.
  ops.push_back({.name = "attention.core",
                 .shape = a,
                 .in = Features::kHeads,
                 .out = Features::kHeads,
                 .saved = {.divided = 2 * q + 2 * kv, .divided_fp32 = a.heads}});
  ops.push_back({.name = "attention.out",
                 .shape = Matmul{.in = q,
                                 .out = width,
                                 .bias_elements = shape.out_bias,
                                 .head_dim = a.head_dim,
                                 .heads = a.heads,
                                 .kv_heads = a.kv_heads},
                 .in = Features::kHeads});
}

void add_sum(std::vector<Op>& ops, std::string name, int64_t width, double dropout) {
  ops.push_back({.name = std::move(name),
                 .shape = Pointwise{.elements_in = 2 * width,
                                    .elements_out = width,
                                    .dropped = dropout > 0 ? width : 0,
                                    .is_sum = true,
                                    .dropout = dropout}});
}

/// The product with a weight keeps what it multiplies.
void add_scale(std::vector<Op>& ops, std::string name, int64_t width, double fresh) {
  ops.push_back({.name = std::move(name),
                 .shape = Pointwise{.elements_in = width, .elements_out = width, .scales = width, .fresh_scale = fresh},
                 .saved = {.whole = width}});
}

void add_mlp(std::vector<Op>& ops, int64_t width, const MlpShape& shape, double dropout) {
  const int64_t inner = shape.intermediate;
  const int64_t up_width = shape.is_gated ? 2 * inner : inner;
  const bool is_moe = shape.experts > 0;
  const int64_t experts = is_moe ? shape.experts : 1;
  const RowsPerToken rows{.numerator = is_moe ? shape.experts_per_token : 1};
  if (is_moe) {
    ops.push_back({.name = "moe.router",
                   .shape = Matmul{.in = width, .out = shape.experts},
                   .saved = {.whole = width, .whole_fp32 = shape.experts},
                   .has_whole_rows = true});
    ops.push_back({.name = "moe.dispatch",
                   .shape = Pointwise{.elements_in = width, .elements_out = width},
                   .rows = rows,
                   .has_whole_rows = true});
  }
  ops.push_back({.name = shape.is_gated ? "mlp.gate_up" : "mlp.up",
                 .shape = Matmul{.in = width,
                                 .out = up_width,
                                 .bias_elements = shape.has_bias ? up_width : 0,
                                 .experts = experts,
                                 .packed = shape.is_gated ? 2 : 1},
                 .out = Features::kInner,
                 .rows = rows,
                 .saved = {.whole = width},
                 .has_whole_rows = is_moe});
  ops.push_back({.name = "mlp.activation",
                 .shape = Pointwise{.elements_in = up_width,
                                    .elements_out = inner,
                                    .dropped = dropout > 0 ? inner : 0,
                                    .dropout = dropout,
                                    .activation = shape.activation},
                 .in = Features::kInner,
                 .out = Features::kInner,
                 .rows = rows,
                 .saved = {.divided = up_width}});
  ops.push_back(
      {.name = "mlp.down",
       .shape = Matmul{.in = inner, .out = width, .bias_elements = shape.has_bias ? width : 0, .experts = experts},
       .in = Features::kInner,
       .rows = rows,
       .saved = {.divided = inner}});
  if (is_moe) {
    // The routing weights' gradient needs every expert's output.
    ops.push_back({.name = "moe.combine",
                   .shape = Pointwise{.elements_in = width, .elements_out = width},
                   .rows = rows,
                   .saved = {.whole = width},
                   .has_whole_rows = true});
  }
}

}  // namespace

Op make_norm(std::string name, NormKind kind, int64_t width, double epsilon) {
  const bool is_layer_norm = kind == NormKind::kLayer;
  return {.name = std::move(name),
          .shape = Norm{.width = width, .has_bias = is_layer_norm, .epsilon = epsilon},
          .saved = {.whole = width, .whole_fp32 = is_layer_norm ? 2 : 1}};
}

Block make_transformer_block(const TransformerBlockShape& shape) {
  Block block{.name = shape.name, .ops = {}};
  block.ops.push_back(make_norm("attention.norm", shape.norm, shape.width, shape.epsilon));
  add_attention(block.ops, shape.width, shape.attention, shape.dropout.in_attention, shape.epsilon);
  if (shape.scale) add_scale(block.ops, "attention.scale", shape.width, *shape.scale);
  add_sum(block.ops, "attention.sum", shape.width, shape.dropout.behind_attention);
  block.ops.push_back(make_norm("mlp.norm", shape.norm, shape.width, shape.epsilon));
  add_mlp(block.ops, shape.width, shape.mlp, shape.dropout.in_mlp);
  if (shape.scale) add_scale(block.ops, "mlp.scale", shape.width, *shape.scale);
  add_sum(block.ops, "mlp.sum", shape.width, shape.dropout.behind_mlp);
  return block;
}

}  // namespace weft
