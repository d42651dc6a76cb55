#include "weft/cost/layer_walk.h"

#include <functional>

#include "weft/cost/attention_walk.h"
#include "weft/program/adapter_ops.h"

namespace weft {
namespace {

/// A product whose weight is cut by rows, and the sum over ranks of what it gives.
using WalkProduct = std::function<CountedTensor(const LinearShape&, const WalkContext&)>;

CountedTensor row_cut_product(const WalkProduct& product, const WalkedBlock& block, std::string_view name,
                              const WalkContext& outside) {
  const Op& op = op_named(block.block, name);
  const WalkContext context = block.at(op, outside);
  const auto& matmul = std::get<Matmul>(op.shape);
  const LocalMatmul local = local_matmul(matmul, op.split(), context.share);
  LinearShape shape{.rows = context.whole_rows,
                    .in = local.in,
                    .out = local.out,
                    .has_bias = matmul.bias_elements > 0 && !context.is_spread(),
                    .adapter = block.adapter_of(op)};
  if (!context.is_spread()) return product(shape, context);
  const WalkContext sum = context.going_back(block.has_rows_gradient(op));
  return walk_leave_with_bias(product(shape, sum), {context.rows, context.whole_rows, local.out},
                              matmul.bias_elements > 0, sum, context);
}

CountedTensor row_cut_linear(const CountedTensor& x, const WalkedBlock& block, std::string_view name,
                             const WalkContext& outside) {
  const auto product = [&x](const LinearShape& shape, const WalkContext& context) {
    return walk_linear(x, shape, context);
  };
  return row_cut_product(product, block, name, outside);
}

CountedTensor column_cut_linear(const CountedTensor& x, const WalkedBlock& block, const Op& op,
                                const WalkContext& outside) {
  const WalkContext context = block.at(op, outside);
  const auto& matmul = std::get<Matmul>(op.shape);
  const LocalMatmul local = local_matmul(matmul, op.split(), context.share);
  return walk_entered_linear(x, {context.rows, context.whole_rows, local.in},
                             {.rows = context.whole_rows,
                              .in = local.in,
                              .out = local.out,
                              .has_bias = matmul.bias_elements > 0,
                              .adapter = block.adapter_of(op)},
                             context.going_back(context.passes_on), context);
}

CountedTensor attention(const CountedTensor& x, const WalkedBlock& layer, const WalkContext& context) {
  const Block& block = layer.block;
  const Op& core_op = op_named(block, "attention.core");
  const auto& core = std::get<Attention>(core_op.shape);
  const LocalHeads heads = local_heads(core, context.share);
  CountedTensor packed = column_cut_linear(x, layer, op_named(block, "attention.qkv"), context);
  if (find_op(block, "attention.q_norm") != nullptr) {
    WalkContext norms = layer.at("attention.k_norm", context);
    norms.trains = layer.needs_of("attention.q_norm").of_weight;
    norms.trains_bias = layer.needs_of("attention.k_norm").of_weight;
    const auto& norm = std::get<Norm>(op_named(block, "attention.q_norm").shape);
    const bool is_by_row = norm.groups == 1 && core.heads > 1;
    packed = walk_norm_heads(packed, context.whole_rows, is_by_row ? LocalHeads{.queries = 1, .keys = 1} : heads,
                             norm.width, norms);
  }
  const CountedTensor mixed =
      walk_attention(packed, heads, core, find_op(block, "attention.rotary") != nullptr, layer.at(core_op, context));
  return row_cut_linear(mixed, layer, "attention.out", context);
}

CountedTensor mlp(const CountedTensor& x, const WalkedBlock& layer, const WalkContext& context) {
  const Block& block = layer.block;
  const Op* gate_up = find_op(block, "mlp.gate_up");
  const Op& up = gate_up != nullptr ? *gate_up : op_named(block, "mlp.up");
  const int64_t up_width = local_matmul(std::get<Matmul>(up.shape), up.split(), context.share).out;
  const CountedTensor wide = column_cut_linear(x, layer, up, context);
  const WalkContext behind = context.going_back(layer.needs_of(up).of_output);
  const double dropout = layer.dropout_of("mlp.activation");
  if (context.activates_again() && dropout == 0 && !layer.adapter_of(op_named(block, "mlp.down"))) {
    const auto product = [&](const LinearShape& shape, const WalkContext& inside) {
      return walk_activated_linear(wide, up_width, shape, behind, inside);
    };
    return row_cut_product(product, layer, "mlp.down", context);
  }
  CountedTensor inner = gate_up != nullptr ? walk_swiglu(wide, context.whole_rows, up_width / 2, behind)
                                           : walk_activation(wide, context.whole_rows, up_width, 1, behind);
  if (dropout == 0) return row_cut_linear(inner, layer, "mlp.down", context);
  const int64_t inner_width = gate_up != nullptr ? up_width / 2 : up_width;
  const CountedTensor left = walk_drop(inner, context.whole_rows, inner_width, dropout, behind);
  inner.reset();
  return row_cut_linear(left, layer, "mlp.down", context);
}

CountedTensor scaled(CountedTensor x, const WalkedBlock& layer, std::string_view name, const WalkContext& context) {
  const Op* op = find_op(layer.block, name);
  if (op == nullptr) return x;
  return walk_scale(x, context.rows, std::get<Pointwise>(op->shape).scales, layer.at(*op, context));
}

/// What is added to rows comes from a half's scale, where it has one, or from its last product.
const Op& summand(const Block& block, std::string_view scale, std::string_view product) {
  const Op* op = find_op(block, scale);
  return op != nullptr ? *op : op_named(block, product);
}

/// What experts' adapters do beside their product, expert by expert.
void expert_adapter(const CountedTensor& x, const LocalMatmul& local, const AdapterShape& adapter, int64_t rows,
                    const std::shared_ptr<CountedTensor>& of_rows, const WalkContext& context) {
  const CountedTensor narrow = context.rows_of(rows, adapter.width);
  {
    const CountedTensor wide = context.rows_of(rows, local.out);
    walk_product(rows, local.in, adapter.width, context);
    walk_copied_product(rows, adapter.rank, local.out, context);
  }
  if (!adapter.is_trained() && !context.passes_on) return;
  const CountedTensor kept = adapter.trains_down ? x : CountedTensor();
  const CountedTensor kept_narrow = adapter.trains_up ? narrow : CountedTensor();
  context.add_step([=](const CountedTensor& dy) {
    const CountedTensor of_narrow = context.rows_of(rows, adapter.width);
    walk_copied_product(rows, local.out, adapter.rank, context);
    const auto make_gradients = [context, adapter, local, rows] {
      if (adapter.trains_down) walk_weight_gradient(rows, local.in, adapter.width, context);
      if (adapter.trains_up) walk_weight_gradient(rows, adapter.rank, local.out, context);
    };
    if (adapter.is_trained() && context.queue != nullptr) {
      context.queue->push_back([kept, kept_narrow, of_narrow, dy, make_gradients] { make_gradients(); });
    } else if (adapter.is_trained()) {
      make_gradients();
    }
    if (context.passes_on) {
      *of_rows = context.rows_of(rows, local.in);
      walk_product(rows, adapter.width, local.in, context);
    }
    return dy;
  });
}

/// Expert by expert where their gradients lie, or all of them in one product that is then added.
void expert_gradients(int64_t rows, const LocalMatmul& local, const WalkContext& context) {
  if (!context.has_own_kernels() || rows == 0) return walk_weight_gradient(rows, local.in, local.out, context);
  const CountedTensor product = context.make(local.experts * local.in * local.out * context.element_bytes);
}

/// A product of every expert with its rows.
CountedTensor expert_linear(const CountedTensor& x, const Op& op, int64_t rows,
                            const std::optional<AdapterShape>& adapter, const WalkContext& context) {
  const auto of_rows = std::make_shared<CountedTensor>();
  if (adapter) {
    context.add_step([of_rows, context](const CountedTensor& of_product) {
      return added_gradient(std::exchange(*of_rows, {}), of_product, context);
    });
  }
  const LocalMatmul local = local_matmul(std::get<Matmul>(op.shape), op.split(), context.share);
  const CountedTensor kept = context.trains ? x : CountedTensor();
  context.add_step([=](const CountedTensor& dy) {
    const auto make_gradients = [context, local, rows] { expert_gradients(rows, local, context); };
    if (context.trains && context.queue != nullptr) {
      context.queue->push_back([kept, dy, make_gradients] { make_gradients(); });
    } else if (context.trains) {
      make_gradients();
    }
    if (!context.passes_on) return CountedTensor();
    CountedTensor dx = context.rows_of(rows, local.in);
    walk_product(rows, local.out, local.in, context);
    return dx;
  });
  CountedTensor y = context.rows_of(rows, local.out);
  walk_product(rows, local.in, local.out, context);
  if (adapter) expert_adapter(x, local, *adapter, rows, of_rows, context);
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
};

WalkedRouting route(const CountedTensor& rows, int64_t num_rows, const WalkedBlock& layer, int64_t experts_per_token,
                    const WalkContext& outside) {
  const Op& op = op_named(layer.block, "moe.router");
  const auto& router = std::get<Matmul>(op.shape);
  WalkContext context = layer.at(op, outside);
  context = context.going_back(context.passes_on || context.trains);
  const int64_t n = num_rows, k = experts_per_token;
  const CountedTensor logits = walk_linear(rows, {.rows = n, .in = router.in, .out = router.out}, context);
  CountedTensor converted;
  if (context.is_half()) converted = context.exact_rows_of(n, router.out);
  const CountedTensor probabilities = context.exact_rows_of(n, router.out);
  converted.reset();
  const CountedTensor best = context.exact_rows_of(n, k);
  const CountedTensor experts = context.make(n * k * kIndexBytes);
  const CountedTensor sum = context.exact_rows_of(n, 1);
  const CountedTensor shares = context.exact_rows_of(n, k);
  WalkedRouting routing;
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

CountedTensor moe(const CountedTensor& x, const LayerWalk& layer, const WalkContext& outside) {
  const Block& block = layer.block;
  const OpNeeds& router = layer.needs_of("moe.router");
  const bool of_rows = router.of_input, of_choice = router.of_input || router.of_weight;
  const int64_t width = std::get<Matmul>(op_named(block, "moe.router").shape).in;
  const Op &up = op_named(block, "mlp.gate_up"), &down = op_named(block, "mlp.down");
  const int64_t k = up.rows.numerator;
  // Experts that are spread over tensor-parallel ranks get the rows that these have between blocks.
  const bool is_over_tp = outside.share.experts_over_tp;
  const int64_t n = is_over_tp ? outside.rows : outside.whole_rows;
  const int64_t sent = n * k, here = layer.is_exchanged ? layer.received_rows : sent;
  const int64_t inner_width = local_matmul(std::get<Matmul>(up.shape), up.split(), outside.share).out / 2;
  const WalkContext before = outside.going_back(of_rows);
  const bool of_wide = of_rows || layer.has_rows_gradient(up);
  const bool of_outer = of_wide || layer.has_rows_gradient(down);
  const CountedTensor rows = is_over_tp ? x : walk_enter(x, {outside.rows, n, width}, before);
  // Experts and router both have a gradient for the rows; the experts' comes first.
  const auto of_experts = std::make_shared<CountedTensor>();
  before.add_step([of_experts, before](const CountedTensor& of_router) {
    return added_gradient(std::exchange(*of_experts, {}), of_router, before);
  });
  const WalkedRouting routing = route(rows, n, layer, k, outside);
  before.add_step([of_experts](const CountedTensor& dy) {
    *of_experts = dy;
    return dy;
  });
  const CountedTensor row_of = outside.make(sent * kIndexBytes);
  CountedTensor sorted = select_rows(row_of, n, sent, width, before);
  CountedTensor there, back;
  if (layer.is_exchanged) {
    there = outside.make(here * kIndexBytes);
    back = outside.make(here * kIndexBytes);
    sorted = exchange(sent, here, width, /*orders_first=*/false, there, before);
  }
  WalkContext of_up = layer.at(up, outside).going_back(of_wide), of_down = layer.at(down, outside).going_back(of_outer);
  of_up.passes_on = of_rows;
  of_down.passes_on = of_wide;
  CountedTensor inner;
  {
    const CountedTensor wide = expert_linear(sorted, up, here, layer.adapter_of(up), of_up);
    inner = walk_swiglu(wide, here, inner_width, outside.going_back(of_wide));
  }
  CountedTensor outer = expert_linear(inner, down, here, layer.adapter_of(down), of_down);
  const WalkContext behind = outside.going_back(of_outer || of_choice);
  if (layer.is_exchanged)
    outer = exchange(here, sent, width, /*orders_first=*/true, back, outside.going_back(of_outer));
  const CountedTensor weights = outside.rows_of(sent, 1);
  CountedTensor y;
  {
    y = outside.rows_of(n, width);
    const CountedTensor weighted = outside.rows_of(sent, width);
  }
  behind.add_step([=, order = routing.order](const CountedTensor&) {
    const CountedTensor kept_outer = outer, kept_weights = weights, kept_rows = row_of, kept_order = order;
    const CountedTensor of_weighted = behind.rows_of(sent, width);
    CountedTensor of_experts_output = behind.rows_of(sent, width);
    const CountedTensor of_weights = behind.rows_of(sent, width), sums = behind.rows_of(sent, 1);
    return of_experts_output;
  });
  return outside.is_spread() && !is_over_tp ? walk_leave(y, {outside.rows, n, width}, behind) : y;
}

}  // namespace

const OpNeeds& WalkedBlock::needs_of(const Op& op) const {
  static const OpNeeds kAll;
  return needs.empty() ? kAll : needs[static_cast<size_t>(&op - block.ops.data())];
}

std::optional<AdapterShape> WalkedBlock::adapter_of(const Op& op) const {
  const auto place = static_cast<size_t>(&op - block.ops.data());
  if (!is_adapted(block, place)) return std::nullopt;
  const Op &down = block.ops[place + 1], &up = block.ops[place + 2], &sum = block.ops[place + 3];
  AdapterShape shape{.rank = std::get<Matmul>(up.shape).in,
                     .width = std::get<Matmul>(down.shape).out,
                     .stretches = 0,
                     .dropout = std::get<Pointwise>(sum.shape).dropout,
                     .trains_down = needs_of(down).of_weight,
                     .trains_up = needs_of(up).of_weight};
  // Parts that have none and lie together are one stretch of zeros.
  const std::vector<std::string>& names = up.weights->names;
  for (size_t i = 0; i < names.size(); ++i) shape.stretches += i == 0 || !names[i].empty() || !names[i - 1].empty();
  return shape;
}

bool WalkedBlock::has_rows_gradient(const Op& op) const {
  const OpNeeds& own = needs_of(op);
  const std::optional<AdapterShape> adapter = adapter_of(op);
  return own.of_input || own.of_weight || (adapter && adapter->is_trained());
}

WalkContext WalkedBlock::at(const Op& op, const WalkContext& context) const {
  const OpNeeds& own = needs_of(op);
  WalkContext here = context.going_back(own.of_output);
  here.trains = own.of_weight;
  here.trains_bias = own.of_bias;
  here.passes_on = own.of_input;
  return here;
}

double WalkedBlock::dropout_of(std::string_view op) const {
  return std::get<Pointwise>(op_named(block, op).shape).dropout;
}

CountedTensor LayerWalk::forward(const CountedTensor& x, const WalkContext& context) const {
  const Op& first = op_named(block, "attention.norm");
  const auto& norm = std::get<Norm>(first.shape);
  CountedTensor attended;
  {
    WalkedBranch branch(context.going_back(needs_of(first).of_input));
    const CountedTensor normed = walk_norm(x, context.rows, norm, at(first, context));
    const CountedTensor made = scaled(attention(normed, *this, context), *this, "attention.scale", context);
    const WalkContext behind =
        context.going_back(needs_of(summand(block, "attention.scale", "attention.out")).of_output);
    const CountedTensor left = walk_drop(made, context.rows, norm.width, dropout_of("attention.sum"), behind);
    attended = branch.join(context.rows, norm.width, behind);
  }
  return forward_mlp(attended, context);
}

CountedTensor LayerWalk::forward_mlp(const CountedTensor& attended, const WalkContext& context) const {
  const Op& second = op_named(block, "mlp.norm");
  const auto& norm = std::get<Norm>(second.shape);
  WalkedBranch branch(context.going_back(needs_of(second).of_input));
  const CountedTensor normed = walk_norm(attended, context.rows, norm, at(second, context));
  const CountedTensor mapped =
      find_op(block, "moe.router") != nullptr ? moe(normed, *this, context) : mlp(normed, *this, context);
  const CountedTensor made = scaled(mapped, *this, "mlp.scale", context);
  const WalkContext behind = context.going_back(needs_of(summand(block, "mlp.scale", "mlp.down")).of_output);
  const CountedTensor left = walk_drop(made, context.rows, norm.width, dropout_of("mlp.sum"), behind);
  return branch.join(context.rows, norm.width, behind);
}

}  // namespace weft
