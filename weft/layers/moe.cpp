#include "weft/layers/moe.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/bincount.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include "weft/layers/activation.h"
#include "weft/layers/adapter.h"
#include "weft/layers/expert_exchange.h"
#include "weft/layers/expert_rows.h"
#include "weft/layers/linear.h"

namespace weft {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Experts : torch::CustomClassHolder {
  ParameterPtr weight;
  std::vector<int64_t> counts;
  WeightGradients* deferred = nullptr;
};

void add_expert_gradients(const Experts& experts, const at::Tensor& x, const at::Tensor& dy) {
  const at::NoGradGuard no_graph;
  Parameter& weight = *experts.weight;
  begin_gradient(weight);
  each_expert(experts.counts, [&](int64_t expert, int64_t row, int64_t rows) {
    add_product_to(weight.gradient.select(0, expert), dy.narrow(0, row, rows).t(), x.narrow(0, row, rows));
  });
}

struct ExpertLinearFunction : torch::autograd::Function<ExpertLinearFunction> {
  static at::Tensor forward(AutogradContext* saved, const at::Tensor& x, const at::Tensor& weight,
                            const c10::intrusive_ptr<Experts>& experts) {
    at::Tensor y = at::empty({x.size(0), weight.size(1)}, x.options());
    each_expert(experts->counts, [&](int64_t expert, int64_t row, int64_t rows) {
      at::Tensor part = y.narrow(0, row, rows);
      at::mm_out(part, x.narrow(0, row, rows), weight.select(0, expert).t());
    });
    saved->save_for_backward({experts->weight->is_trainable() ? x : at::Tensor(), weight});
    saved->saved_data["experts"] = at::IValue::make_capsule(experts);
    return y;
  }

  static variable_list backward(AutogradContext* saved, const variable_list& gradients) {
    const variable_list tensors = saved->get_saved_variables();
    const at::Tensor dy = gradients[0].contiguous();
    const auto experts = c10::static_intrusive_pointer_cast<Experts>(saved->saved_data["experts"].toCapsule());
    if (experts->weight->is_trainable()) {
      if (experts->deferred != nullptr) {
        experts->deferred->add([experts, x = tensors[0].detach(), dy] { add_expert_gradients(*experts, x, dy); });
      } else {
        add_expert_gradients(*experts, tensors[0], dy);
      }
    }
    at::Tensor dx;
    if (saved->needs_input_grad(0)) {
      dx = at::empty({dy.size(0), tensors[1].size(2)}, dy.options());
      each_expert(experts->counts, [&](int64_t expert, int64_t row, int64_t rows) {
        at::Tensor part = dx.narrow(0, row, rows);
        at::mm_out(part, dy.narrow(0, row, rows), tensors[1].select(0, expert));
      });
    }
    return {dx, at::Tensor(), at::Tensor()};
  }
};

/// Every expert's output, weighted, added to the row that it is of. Autograd's own index_add would keep what it adds
/// only to read its shape.
struct CombineFunction : torch::autograd::Function<CombineFunction> {
  static at::Tensor forward(AutogradContext* saved, const at::Tensor& outer, const at::Tensor& weights,
                            const at::Tensor& row_of, int64_t num_rows) {
    saved->save_for_backward({outer, weights, row_of});
    return at::zeros({num_rows, outer.size(1)}, outer.options()).index_add_(0, row_of, outer * weights);
  }

  static variable_list backward(AutogradContext* saved, const variable_list& gradients) {
    const variable_list tensors = saved->get_saved_variables();
    const at::Tensor of_rows = gradients[0].index_select(0, tensors[2]);
    return {of_rows * tensors[1], (of_rows * tensors[0]).sum(1, /*keepdim=*/true), at::Tensor(), at::Tensor()};
  }
};

/// Passes its first input on and adds `scale` times the second, a loss of its own, to what is minimised. A stage of a
/// pipeline so needs no second output.
struct AddLossFunction : torch::autograd::Function<AddLossFunction> {
  static at::Tensor forward(AutogradContext* saved, const at::Tensor& x, const at::Tensor& loss, double scale) {
    saved->save_for_backward({loss});
    saved->saved_data["scale"] = scale;
    return x.view_as(x);
  }

  static variable_list backward(AutogradContext* saved, const variable_list& gradients) {
    const at::Tensor loss = saved->get_saved_variables()[0];
    return {gradients[0], at::ones_like(loss).mul_(saved->saved_data["scale"].toDouble()), at::Tensor()};
  }
};

/// A microbatch as its balancing loss sees it.
struct RoutedRows {
  int64_t rows = 0;
  std::vector<int64_t> counts;  ///< rows that chose each expert
};

RoutedRows join(RoutedRows own, const Group& group) {
  own.counts.push_back(own.rows);
  Group(group)
      .all_reduce(Buffer{.data = own.counts.data(), .count = std::ssize(own.counts), .type = DataType::kInt64},
                  Reduction::kSum)
      .wait();
  own.rows = own.counts.back();
  own.counts.pop_back();
  return own;
}

/// experts / (rows² · k) · Σ over experts of rows that chose it · Σ over rows of its probability: 1 when all are equal.
/// The second sum is over the rows here, so that ranks' parts add up.
at::Tensor balance_loss(const at::Tensor& probabilities, const RoutedRows& routed, int64_t experts_per_token) {
  if (routed.rows == 0) return probabilities.sum();
  const auto rows = static_cast<double>(routed.rows);
  const auto num_experts = static_cast<double>(routed.counts.size());
  const at::Tensor chosen = at::empty({std::ssize(routed.counts)}, at::TensorOptions().dtype(at::kDouble));
  for (size_t expert = 0; expert < routed.counts.size(); ++expert)
    chosen.data_ptr<double>()[expert] = static_cast<double>(routed.counts[expert]);
  const at::Tensor total = probabilities.sum(0);
  return (total * chosen.to(total.options())).sum() *
         (num_experts / (rows * rows * static_cast<double>(experts_per_token)));
}

}  // namespace

at::Tensor expert_linear(const at::Tensor& x, const ParameterPtr& weight, const std::vector<int64_t>& counts,
                         const RunContext& context) {
  auto experts = c10::make_intrusive<Experts>();
  experts->weight = weight;
  experts->counts = counts;
  experts->deferred = context.deferred;
  const at::Tensor y = ExpertLinearFunction::apply(x, weight->value, experts);
  return weight->adapter ? add_expert_adapter(y, x, *weight->adapter, counts, context) : y;
}

Routing MoeLayer::route(const at::Tensor& x, const RunContext& context) const {
  const at::Tensor logits = linear(x, router, {}, context);
  const at::ScalarType exact = logits.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor probabilities = at::softmax(logits, -1, exact);
  auto [weights, experts] = at::topk(probabilities, experts_per_token, -1);
  if (normalizes_weights) weights = weights / weights.sum(-1, /*keepdim=*/true);

  Routing routing;
  routing.experts = experts;
  routing.order = std::get<1>(at::sort(experts.flatten(), std::optional<bool>(true), /*dim=*/0));
  const at::Tensor counts = at::bincount(experts.flatten(), {}, router->value.size(0)).cpu();
  routing.counts.assign(counts.data_ptr<int64_t>(), counts.data_ptr<int64_t>() + counts.numel());
  if (context.expert_rows != nullptr) context.expert_rows->push_back(routing.counts);
  if (context.balance_scale != 0 || context.balance_losses != nullptr) {
    RoutedRows routed{.rows = x.size(0), .counts = routing.counts};
    if (context.balance != nullptr) routed = join(std::move(routed), *context.balance);
    const at::Tensor loss = balance_loss(probabilities, routed, experts_per_token);
    if (context.balance_losses != nullptr) context.balance_losses->push_back(loss.detach());
    if (context.balance_scale != 0) weights = AddLossFunction::apply(weights, loss, context.balance_scale);
  }
  routing.weights = weights.to(x.scalar_type());
  return routing;
}

at::Tensor MoeLayer::forward(const at::Tensor& x, const RunContext& context) const {
  // Where experts are cut, every rank routes all rows, and alike; what follows, routing weights' gradients included,
  // are summands.
  const at::Tensor rows = context.experts_over_tp ? x : context.enter(x);
  const Routing routing = route(rows, context);
  const at::Tensor row_of = routing.order.floor_divide(experts_per_token);
  at::Tensor sorted = rows.index_select(0, row_of);
  std::vector<int64_t> counts = routing.counts;
  std::optional<ExpertExchange> exchange;
  if (context.experts != nullptr) {
    exchange = plan_exchange(*context.experts, routing.counts, rows.device());
    sorted = dispatch(sorted, *exchange);
    counts = exchange->counts;
  }
  const at::Tensor inner = swiglu(expert_linear(sorted, gate_up, counts, context));
  at::Tensor outer = expert_linear(inner, down, counts, context);
  if (exchange) outer = combine(outer, *exchange);
  const at::Tensor weights = routing.weights.flatten().index_select(0, routing.order).unsqueeze(1);
  const at::Tensor y = CombineFunction::apply(outer, weights, row_of, rows.size(0));
  return context.experts_over_tp ? y : context.leave(y);
}

}  // namespace weft
