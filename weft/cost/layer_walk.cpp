#include "weft/cost/layer_walk.h"

namespace weft {
namespace {

/// A product whose weight is cut by rows, and the sum over ranks of what it gives.
CountedTensor row_cut_linear(const CountedTensor& x, const Op& op, const WalkContext& context) {
  const auto& matmul = std::get<Matmul>(op.shape);
  const LocalMatmul local = local_matmul(matmul, op.split, context.share);
  LinearShape shape{.rows = context.whole_rows,
                    .in = local.in,
                    .out = local.out,
                    .has_bias = matmul.bias_elements > 0 && !context.is_spread()};
  if (!context.is_spread()) return walk_linear(x, shape, context);
  CountedTensor rows;
  {
    const CountedTensor summand = walk_linear(x, shape, context);
    rows = walk_leave(summand, {context.rows, context.whole_rows, local.out}, context);
  }
  return matmul.bias_elements > 0 ? walk_add_bias(rows, local.out, context) : rows;
}

CountedTensor column_cut_linear(const CountedTensor& x, const Op& op, bool makes_input_gradient,
                                const WalkContext& context) {
  const auto& matmul = std::get<Matmul>(op.shape);
  const LocalMatmul local = local_matmul(matmul, op.split, context.share);
  const CountedTensor whole = walk_enter(x, {context.rows, context.whole_rows, local.in}, context);
  return walk_linear(whole,
                     {.rows = context.whole_rows,
                      .in = local.in,
                      .out = local.out,
                      .has_bias = matmul.bias_elements > 0,
                      .makes_input_gradient = makes_input_gradient},
                     context);
}

CountedTensor attention(const CountedTensor& x, const Block& block, const WalkContext& context) {
  const auto& core = std::get<Attention>(op_named(block, "attention.core").shape);
  const LocalHeads heads = local_heads(core, context.share);
  CountedTensor packed = column_cut_linear(x, op_named(block, "attention.qkv"), true, context);
  if (find_op(block, "attention.q_norm") != nullptr)
    packed = walk_norm_heads(packed, context.whole_rows, heads, core.head_dim, context);
  const CountedTensor mixed =
      walk_attention(packed, heads, core, find_op(block, "attention.rotary") != nullptr, context);
  return row_cut_linear(mixed, op_named(block, "attention.out"), context);
}

CountedTensor mlp(const CountedTensor& x, const Block& block, const WalkContext& context) {
  const Op* gate_up = find_op(block, "mlp.gate_up");
  const Op& up = gate_up != nullptr ? *gate_up : op_named(block, "mlp.up");
  const int64_t up_width = local_matmul(std::get<Matmul>(up.shape), up.split, context.share).out;
  const CountedTensor wide = column_cut_linear(x, up, true, context);
  const CountedTensor inner = gate_up != nullptr ? walk_swiglu(wide, context.whole_rows, up_width / 2, context)
                                                 : walk_activation(wide, context.whole_rows, up_width, 1, context);
  return row_cut_linear(inner, op_named(block, "mlp.down"), context);
}

/// A product of every expert with its rows.
CountedTensor expert_linear(const CountedTensor& x, const Op& op, int64_t rows, const WalkContext& context) {
  const LocalMatmul local = local_matmul(std::get<Matmul>(op.shape), op.split, context.share);
  context.add_step([=](const CountedTensor& dy) {
    const auto make_gradients = [context, local, rows] { walk_weight_gradient(rows, local.in, local.out, context); };
    if (context.trains && context.queue != nullptr) {
      context.queue->push_back([x, dy, make_gradients] { make_gradients(); });
    } else if (context.trains) {
      make_gradients();
    }
    CountedTensor dx = context.rows_of(rows, local.in);
    walk_product(rows, local.out, local.in, context);
    return dx;
  });
  CountedTensor y = context.rows_of(rows, local.out);
  walk_product(rows, local.in, local.out, context);
  return y;
}

/// Rows by their number, and their gradients' way back.
CountedTensor select_rows(const CountedTensor& index, int64_t from, int64_t to, int64_t width,
                          const WalkContext& context) {
  context.add_step([index, from, width, context](const CountedTensor&) { return context.rows_of(from, width); });
  return context.rows_of(to, width);
}

/// Rows to the ranks of their experts in the order of experts, or back.
CountedTensor exchange(int64_t from, int64_t to, int64_t width, bool orders_first, const CountedTensor& order,
                       const WalkContext& context) {
  if (orders_first) {
    const CountedTensor ordered = select_rows(order, from, from, width, context);
    context.add_step([=](const CountedTensor&) { return context.rows_of(from, width); });
    return context.rows_of(to, width);
  }
  context.add_step([=](const CountedTensor&) { return context.rows_of(from, width); });
  const CountedTensor received = context.rows_of(to, width);
  return select_rows(order, to, to, width, context);
}

struct WalkedRouting {
  CountedTensor order;
  CountedTensor weights;
  std::shared_ptr<CountedTensor> weight_gradient;
};

WalkedRouting route(const CountedTensor& rows, const Block& block, int64_t experts_per_token,
                    const WalkContext& context) {
  const auto& router = std::get<Matmul>(op_named(block, "moe.router").shape);
  const int64_t n = context.whole_rows, k = experts_per_token;
  const CountedTensor logits = walk_linear(rows, {.rows = n, .in = router.in, .out = router.out}, context);
  CountedTensor converted;
  if (context.is_half()) converted = context.exact_rows_of(n, router.out);
  const CountedTensor probabilities = context.exact_rows_of(n, router.out);
  converted.reset();
  const CountedTensor best = context.exact_rows_of(n, k);
  const CountedTensor experts = context.make(n * k * kIndexBytes);
  const CountedTensor sum = context.exact_rows_of(n, 1);
  const CountedTensor shares = context.exact_rows_of(n, k);
  WalkedRouting routing{.weight_gradient = std::make_shared<CountedTensor>()};
  {
    const CountedTensor sorted = context.make(n * k * kIndexBytes);
    routing.order = context.make(n * k * kIndexBytes);
    const CountedTensor copied = context.make(2 * n * k * kIndexBytes);
  }
  routing.weights = context.is_half() ? context.rows_of(n, k) : shares;
  context.add_step([=](const CountedTensor&) {
    const CountedTensor kept = probabilities, kept_best = best, kept_experts = experts, kept_sum = sum;
    const CountedTensor of_best = context.exact_rows_of(n, 2 * k);
    const CountedTensor of_probabilities = context.exact_rows_of(n, router.out);
    const CountedTensor of_exact = context.exact_rows_of(n, router.out);
    return context.is_half() ? context.rows_of(n, router.out) : of_exact;
  });
  return routing;
}

CountedTensor moe(const CountedTensor& x, const LayerWalk& layer, const WalkContext& context) {
  const Block& block = layer.block;
  const int64_t width = std::get<Matmul>(op_named(block, "moe.router").shape).in;
  const Op& up = op_named(block, "mlp.gate_up");
  const int64_t k = up.rows.numerator;
  const int64_t n = context.whole_rows, sent = n * k, here = layer.is_exchanged ? layer.received_rows : sent;
  const int64_t inner_width = local_matmul(std::get<Matmul>(up.shape), up.split, context.share).out / 2;
  const CountedTensor rows = walk_enter(x, {context.rows, n, width}, context);
  // Experts and router both have a gradient for the rows; the experts' comes first.
  const auto of_rows = std::make_shared<CountedTensor>();
  context.add_step([of_rows, context](const CountedTensor& of_router) {
    return added_gradient(std::exchange(*of_rows, {}), of_router, context);
  });
  const WalkedRouting routing = route(rows, block, k, context);
  context.add_step([of_rows](const CountedTensor& dy) {
    *of_rows = dy;
    return dy;
  });
  const CountedTensor row_of = context.make(sent * kIndexBytes);
  CountedTensor sorted = select_rows(row_of, n, sent, width, context);
  CountedTensor there, back;
  if (layer.is_exchanged) {
    there = context.make(here * kIndexBytes);
    back = context.make(here * kIndexBytes);
    sorted = exchange(sent, here, width, /*orders_first=*/false, there, context);
  }
  CountedTensor inner;
  {
    const CountedTensor wide = expert_linear(sorted, up, here, context);
    inner = walk_swiglu(wide, here, inner_width, context);
  }
  CountedTensor outer = expert_linear(inner, op_named(block, "mlp.down"), here, context);
  if (layer.is_exchanged) outer = exchange(here, sent, width, /*orders_first=*/true, back, context);
  const CountedTensor weights = context.rows_of(sent, 1);
  CountedTensor y;
  {
    y = context.rows_of(n, width);
    const CountedTensor weighted = context.rows_of(sent, width);
  }
  context.add_step([context, sent, width, outer, weights, row_of, order = routing.order](const CountedTensor&) {
    const CountedTensor of_weighted = context.rows_of(sent, width);
    CountedTensor of_outer = context.rows_of(sent, width);
    const CountedTensor of_weights = context.rows_of(sent, width), sums = context.rows_of(sent, 1);
    return of_outer;
  });
  return context.is_spread() ? walk_leave(y, {context.rows, n, width}, context) : y;
}

}  // namespace

CountedTensor LayerWalk::forward(const CountedTensor& x, const WalkContext& context) const {
  const auto& norm = std::get<Norm>(op_named(block, "attention.norm").shape);
  CountedTensor attended;
  {
    WalkedBranch branch(context);
    const CountedTensor normed = walk_norm(x, context.rows, norm, context);
    const CountedTensor made = attention(normed, block, context);
    attended = branch.join(context.rows, norm.width);
  }
  WalkedBranch branch(context);
  const CountedTensor normed = walk_norm(attended, context.rows, norm, context);
  const CountedTensor made =
      find_op(block, "moe.router") != nullptr ? moe(normed, *this, context) : mlp(normed, block, context);
  return branch.join(context.rows, norm.width);
}

}  // namespace weft
