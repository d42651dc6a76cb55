#include "weft/layers/moe.h"

#include <tuple>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_grouped_mm.h>
#include <ATen/ops/bincount.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
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
#include "weft/layers/linear.h"
#include "weft/tensor/local_tensor.h"

namespace weft {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Experts : torch::CustomClassHolder {
  ParameterPtr weight;
  ExpertCounts counts;
  WeightGradients* deferred = nullptr;
};

/// x · weights[expert], for every expert's rows; weights [experts, in, out] may be views.
at::Tensor product_of_experts(const at::Tensor& x, const at::Tensor& weights, const ExpertCounts& counts) {
  if (x.size(0) > 0 && has_grouped_products(x, weights.size(2)))
    return at::_grouped_mm(x, weights, counts.ends_on(x.device()));
  at::Tensor y = at::empty({x.size(0), weights.size(2)}, x.options());
  each_expert(counts.numbers(), [&](int64_t expert, int64_t row, int64_t rows) {
    at::Tensor part = y.narrow(0, row, rows);
    at::mm_out(part, x.narrow(0, row, rows), weights.select(0, expert));
  });
  return y;
}

void add_expert_gradients(const Experts& experts, const at::Tensor& x, const at::Tensor& dy) {
  const at::NoGradGuard no_graph;
  Parameter& weight = *experts.weight;
  if (x.size(0) > 0 && has_grouped_products(x, dy.size(1)))
    return weight.add_gradient(at::_grouped_mm(dy.t(), x, experts.counts.ends_on(x.device())));
  begin_gradient(weight);
  each_expert(experts.counts.numbers(), [&](int64_t expert, int64_t row, int64_t rows) {
    add_product_to(weight.gradient.select(0, expert), dy.narrow(0, row, rows).t(), x.narrow(0, row, rows));
  });
}

struct ExpertLinearFunction : torch::autograd::Function<ExpertLinearFunction> {
  static at::Tensor forward(AutogradContext* saved, const at::Tensor& x, const at::Tensor& weight,
                            const c10::intrusive_ptr<Experts>& experts) {
    saved->save_for_backward({experts->weight->is_trainable() ? x : at::Tensor(), weight});
    saved->saved_data["experts"] = at::IValue::make_capsule(experts);
    return product_of_experts(x, weight.transpose(1, 2), experts->counts);
  }

  static variable_list backward(AutogradContext* saved, const variable_list& gradients) {
    const at::NoGradGuard no_graph;
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
    if (saved->needs_input_grad(0)) dx = product_of_experts(dy, tensors[1], experts->counts);
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

/// Where a device has sorted them, its host waits for no numbers.
ExpertCounts counts_of(const at::Tensor& sorted_experts, int64_t num_experts) {
  if (!sorted_experts.device().is_cpu()) return ExpertCounts::of_sorted(sorted_experts, num_experts);
  const at::Tensor counts = at::bincount(sorted_experts, {}, num_experts);
  return {std::vector<int64_t>(counts.data_ptr<int64_t>(), counts.data_ptr<int64_t>() + counts.numel())};
}

/// A microbatch as its balancing loss sees it.
struct RoutedRows {
  int64_t rows = 0;
  at::Tensor counts;  ///< rows that chose each expert, int64
};

RoutedRows join(const RoutedRows& own, const Group& group) {
  const at::Tensor all = at::cat({own.counts.cpu(), at::full({1}, own.rows, at::kLong)});
  Group(group).all_reduce(buffer_of(all), Reduction::kSum).wait();
  return {.rows = all[own.counts.size(0)].item<int64_t>(), .counts = all.narrow(0, 0, own.counts.size(0))};
}

/// experts / (rows² · k) · Σ over experts of rows that chose it · Σ over rows of its probability: 1 when all are equal.
/// The second sum is over the rows here, so that ranks' parts add up.
at::Tensor balance_loss(const at::Tensor& probabilities, const RoutedRows& routed, int64_t experts_per_token) {
  if (routed.rows == 0) return probabilities.sum();
  const auto rows = static_cast<double>(routed.rows);
  const auto num_experts = static_cast<double>(routed.counts.size(0));
  const at::Tensor total = probabilities.sum(0);
  return (total * routed.counts.to(total.options())).sum() *
         (num_experts / (rows * rows * static_cast<double>(experts_per_token)));
}

}  // namespace

at::Tensor expert_linear(const at::Tensor& x, const ParameterPtr& weight, const ExpertCounts& counts,
                         const RunContext& context) {
  auto experts = c10::make_intrusive<Experts>();
  experts->weight = weight;
  experts->counts = counts;
  experts->deferred = context.deferred;
  const at::Tensor y = ExpertLinearFunction::apply(x, weight->value, experts);
  return weight->adapter ? add_expert_adapter(y, x, *weight->adapter, counts.numbers(), context) : y;
}

Routing MoeLayer::route(const at::Tensor& x, const RunContext& context) const {
  const at::Tensor logits = linear(x, router, {}, context);
  const at::ScalarType exact = logits.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor probabilities = at::softmax(logits, -1, exact);
  auto [weights, experts] = at::topk(probabilities, experts_per_token, -1);
  if (normalizes_weights) weights = weights / weights.sum(-1, /*keepdim=*/true);

  Routing routing;
  routing.experts = experts;
  at::Tensor sorted;
  std::tie(sorted, routing.order) = at::sort(experts.flatten(), std::optional<bool>(true), /*dim=*/0);
  routing.counts = counts_of(sorted, router->value.size(0));
  if (context.expert_rows != nullptr) context.expert_rows->push_back(routing.counts.tensor());
  if (context.balance_scale != 0 || context.balance_losses != nullptr) {
    RoutedRows routed{.rows = x.size(0), .counts = routing.counts.tensor()};
    if (context.balance != nullptr) routed = join(routed, *context.balance);
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
  ExpertCounts counts = routing.counts;
  std::optional<ExpertExchange> exchange;
  if (context.experts != nullptr) {
    exchange = plan_exchange(*context.experts, routing.counts.numbers(), rows.device());
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
