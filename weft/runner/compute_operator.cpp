#include <algorithm>
#include <numeric>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/einsum.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include "weft/base/check.h"
#include "weft/layers/activation.h"
#include "weft/layers/dropout.h"
#include "weft/layers/linear.h"
#include "weft/layers/norm.h"
#include "weft/program/member_groups.h"
#include "weft/runner/local_operator.h"
#include "weft/tensor/local_tensor.h"

// What operators compute on one rank's parts. Below fp32 sums are in fp32, and rounded once.

namespace weft {
namespace {

at::Tensor wide(const at::Tensor& x) {
  return x.to(sum_type(x.scalar_type()));
}

/// What a rank has of two numbers of every row: the sum of exponentials over `largest`, and the target's logit, 0 where
/// another rank has it. Exponentials and places are kept; LibTorch's gather would keep the logits, too.
struct LossSumsFunction : torch::autograd::Function<LossSumsFunction> {
  static at::Tensor forward(torch::autograd::AutogradContext* saved, const at::Tensor& logits,
                            const at::Tensor& largest, const at::Tensor& places) {
    const int64_t classes = logits.size(-1);
    const at::Tensor powers = (logits - largest).exp_();
    const at::Tensor is_here = (places >= 0).logical_and_(places < classes);
    const at::Tensor sums = powers.sum(-1);
    at::Tensor index = places, chosen = at::zeros_like(sums);
    if (classes > 0) {
      index = places.clamp(0, classes - 1);
      const at::Tensor found = logits.gather(-1, index.unsqueeze(-1)).squeeze(-1);
      chosen = at::where(is_here, found.to(sums.scalar_type()), chosen);
    }
    saved->save_for_backward({powers, index, is_here});
    saved->saved_data["type"] = static_cast<int64_t>(logits.scalar_type());
    return at::stack({sums, chosen});
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* saved,
                                                 const torch::autograd::variable_list& gradients) {
    const torch::autograd::variable_list kept = saved->get_saved_variables();
    const at::Tensor& powers = kept[0];
    const at::Tensor dx = powers * gradients[0][0].unsqueeze(-1);
    if (powers.size(-1) > 0) dx.scatter_add_(-1, kept[1].unsqueeze(-1), (gradients[0][1] * kept[2]).unsqueeze(-1));
    const auto type = static_cast<at::ScalarType>(saved->saved_data["type"].toInt());
    return {dx.to(type), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor LocalOperator::compute(const std::vector<at::Tensor>& x, const Call& call) const {
  switch (op().kind) {
    case OperatorKind::kEinsum:
    case OperatorKind::kMultiply:
    case OperatorKind::kSum:
      return compute_products(x, call);
    case OperatorKind::kAdd:
      return compute_sum(x, call);
    case OperatorKind::kElementwise:
      return compute_function(x, call);
    case OperatorKind::kScale:
      return aligned(x[0], 0) * op().calculation.factor;
    case OperatorKind::kDropout:
      return compute_dropout(x[0], call);
    case OperatorKind::kReshape:
      return compute_reshape(x[0], call);
    case OperatorKind::kNorm:
      return inside_ ? compute_cut_norm(x, call) : compute_norm(x, call);
    case OperatorKind::kSoftmax:
      return compute_softmax(x[0], call);
    case OperatorKind::kAttention:
      return compute_attention(x[0], call);
    case OperatorKind::kLookup:
      return compute_lookup(x[0], x[1], call);
    case OperatorKind::kCrossEntropy:
      return compute_loss(x[0], x[1], call);
    case OperatorKind::kDispatch:
      return compute_dispatch(x, call);
    case OperatorKind::kCombine:
      // The rows of all experts, each times its weight.
      return at::einsum("eri,re->ri", {x[0], x[1].flatten(0, -2)}).reshape(call.place.result_shape);
    case OperatorKind::kCustom:
      return compute_custom(x, call);
  }
  WEFT_CHECK(false, "{} is run without a rule for it", op().name);
}

at::Tensor LocalOperator::compute_product(const at::Tensor& x, const ProductCall& product) {
  const RunContext context{.deferred = product.call.graph.deferred.get()};
  const std::vector<int64_t>& shape = product.call.place.result_shape;
  const auto rows_of = [](const at::Tensor& y) {
    return y.dim() == 2 ? y : y.dim() == 1 ? y.unsqueeze(0) : y.flatten(0, -2);
  };
  if (product.activation == nullptr) return linear(rows_of(x), product.weight, product.bias, context).view(shape);
  const Operator& op = product.activation->op();
  const Program& program = *product.activation->program_;
  MlpActivation between{.activation = *op.calculation.function, .is_gated = is_gate(program, op)};
  // Layers have all gates of a row before what they let through, and silu alone.
  const int64_t unit = program.dims[program.values[op.result].dims.back()].unit;
  if (between.is_gated && (between.activation != Activation::kSilu || x.size(-1) != 2 * unit)) {
    const Call call{
        .place = *product.activation_place, .draws = product.call.draws, .graph = product.call.graph, .weights = {}};
    return linear(rows_of(product.activation->compute_function({x}, call)), product.weight, product.bias, context)
        .view(shape);
  }
  return activated_linear(rows_of(x), between, product.weight, product.bias, context).view(shape);
}

RowsAndNorm LocalOperator::compute_sum_and_norm(const at::Tensor& x, at::Tensor added, const Call& call) const {
  return add_and_norm(x, std::move(added), call.weights[1], call.weights.size() > 2 ? call.weights[2] : ParameterPtr(),
                      op().calculation.epsilon);
}

at::Tensor LocalOperator::aligned(const at::Tensor& x, size_t operand) const {
  const RuleTerm& term = op().rule.operands[operand];
  const RuleTerm& result = op().rule.result;
  if (term == result) return x;
  std::vector<int64_t> order;
  std::vector<bool> has(result.size());
  for (size_t place = 0; place < result.size(); ++place) {
    const auto found = std::find(term.begin(), term.end(), result[place]);
    has[place] = found != term.end();
    if (has[place]) order.push_back(found - term.begin());
  }
  at::Tensor y = x.permute(order);
  for (size_t place = 0; place < result.size(); ++place) {
    if (!has[place]) y = y.unsqueeze(static_cast<int64_t>(place));
  }
  return y;
}

at::Tensor LocalOperator::compute_products(const std::vector<at::Tensor>& x, const Call& call) const {
  if (op().kind == OperatorKind::kMultiply) {
    at::Tensor product = aligned(x[0], 0);
    for (size_t i = 1; i < x.size(); ++i) product = product * aligned(x[i], i);
    return product.expand(call.place.result_shape);
  }
  return at::einsum(equation_, x);
}

at::Tensor LocalOperator::compute_sum(const std::vector<at::Tensor>& x, const Call& call) const {
  at::Tensor sum = aligned(x[0], 0) + aligned(x[1], 1);
  for (size_t i = 2; i < x.size(); ++i) sum = sum + aligned(x[i], i);
  return sum.expand(call.place.result_shape);
}

at::Tensor LocalOperator::compute_function(const std::vector<at::Tensor>& x, const Call& call) const {
  const Activation function = *op().calculation.function;
  const at::Tensor first = aligned(x[0], 0);
  const ProgramValue& read = program_->values[op().operands[0]];
  const ProgramValue& made = program_->values[op().result];
  at::Tensor y;
  // A dim whose units have a gate and what it lets through.
  for (size_t place = 0; place < op().rule.result.size() && !y.defined(); ++place) {
    const auto found = std::find(op().rule.operands[0].begin(), op().rule.operands[0].end(), op().rule.result[place]);
    if (found == op().rule.operands[0].end()) continue;
    const ProgramDim& from = program_->dims[read.dims[static_cast<size_t>(found - op().rule.operands[0].begin())]];
    const ProgramDim& to = program_->dims[made.dims[place]];
    if (from.length != 2 * to.length) continue;
    const auto dim = static_cast<int64_t>(place);
    if (place + 1 == op().rule.result.size()) {
      y = gated(first.unflatten(dim, {-1, 2, to.unit}), function).flatten(dim);
      continue;
    }
    const std::vector<at::Tensor> halves = first.unflatten(dim, {-1, 2, to.unit}).unbind(dim + 1);
    y = activate(halves[0], function) * halves[1];
    y = y.flatten(dim, dim + 1);
  }
  if (!y.defined()) y = activate(first, function);
  for (size_t i = 1; i < x.size(); ++i) y = y * aligned(x[i], i);
  return y.expand(call.place.result_shape);
}

at::Tensor LocalOperator::compute_reshape(const at::Tensor& x, const Call& call) const {
  const RuleTerm& from = op().rule.operands[0];
  const RuleTerm& to = op().rule.result;
  // The lengths that dims of the rule have here: those of tensors that have them alone.
  std::vector<int64_t> lengths(op().rule.dims.size(), -1);
  const std::vector<int64_t>& made = call.place.result_shape;
  for (size_t place = 0; place < from.size(); ++place) {
    if (from[place].size() == 1) lengths[from[place][0]] = x.size(static_cast<int64_t>(place));
  }
  for (size_t place = 0; place < to.size(); ++place) {
    if (to[place].size() == 1 && lengths[to[place][0]] < 0) lengths[to[place][0]] = made[place];
  }
  std::vector<int64_t> apart, order;
  std::vector<size_t> dims;
  for (const std::vector<size_t>& parts : from) {
    for (const size_t dim : parts) {
      apart.push_back(lengths[dim]);
      dims.push_back(dim);
    }
  }
  for (const std::vector<size_t>& parts : to) {
    for (const size_t dim : parts) order.push_back(std::find(dims.begin(), dims.end(), dim) - dims.begin());
  }
  return x.reshape(apart).permute(order).reshape(made);
}

at::Tensor LocalOperator::compute_norm(const std::vector<at::Tensor>& x, const Call& call) const {
  const double epsilon = op().calculation.epsilon;
  if (is_norm_of_rows(*program_, op()))
    return x.size() == 2 ? rms_norm(x[0], call.weights[1], epsilon)
                         : layer_norm(x[0], call.weights[1], call.weights[2], epsilon);
  at::Tensor normed = wide(x[0]);
  if (x.size() == 3) normed = normed - normed.mean(-1, /*keepdim=*/true);
  normed = normed * (normed.square().mean(-1, /*keepdim=*/true) + epsilon).rsqrt();
  normed = aligned(normed.to(x[0].scalar_type()), 0);
  if (x.size() > 1) normed = normed * aligned(x[1], 1);
  return x.size() > 2 ? normed + aligned(x[2], 2) : normed;
}

at::Tensor LocalOperator::compute_cut_norm(const std::vector<at::Tensor>& x, const Call& call) const {
  const auto width = static_cast<double>(call.place.shapes[0].back());
  const double epsilon = op().calculation.epsilon;
  const at::Tensor rows = wide(x[0]);
  at::Tensor normed;
  if (x.size() == 3) {
    const at::Tensor sums = summed_inside(at::stack({rows.sum(-1), rows.square().sum(-1)}), false, call);
    const at::Tensor mean = sums[0] / width, variance = sums[1] / width - mean.square();
    normed = (rows - mean.unsqueeze(-1)) * (variance + epsilon).rsqrt().unsqueeze(-1);
  } else {
    const at::Tensor squares = summed_inside(rows.square().sum(-1), false, call);
    normed = rows * (squares / width + epsilon).rsqrt().unsqueeze(-1);
  }
  normed = aligned(normed.to(x[0].scalar_type()), 0);
  if (x.size() > 1) normed = normed * aligned(x[1], 1);
  return x.size() > 2 ? normed + aligned(x[2], 2) : normed;
}

at::Tensor LocalOperator::compute_softmax(const at::Tensor& x, const Call& call) const {
  const int64_t top = op().calculation.top;
  if (top > 0) {
    auto [largest, places] = at::softmax(x, -1, sum_type(x.scalar_type())).topk(std::min(top, x.size(-1)), -1);
    if (op().calculation.is_normalized) largest = largest / largest.sum(-1, /*keepdim=*/true);
    return aligned(at::zeros_like(x).scatter(-1, places, largest.to(x.scalar_type())), 0);
  }
  if (!inside_) return aligned(at::softmax(x, -1), 0);
  const at::Tensor powers = (wide(x) - largest_inside(wide(x))).exp();
  const at::Tensor shares = powers / summed_inside(powers.sum(-1, /*keepdim=*/true), false, call);
  return aligned(shares.to(x.scalar_type()), 0);
}

at::Tensor LocalOperator::compute_loss(const at::Tensor& logits, const at::Tensor& targets, const Call& call) const {
  const at::Tensor largest = largest_inside(logits);
  const at::Tensor places = targets - call.place.operands[0].back().begin;
  const at::Tensor sums = summed_inside(LossSumsFunction::apply(logits, largest, places), true, call);
  const at::Tensor loss = sums[0].log() + largest.squeeze(-1) - sums[1];
  return aligned(at::where(targets >= 0, loss, at::zeros_like(loss)), 1);
}

at::Tensor LocalOperator::compute_lookup(const at::Tensor& ids, const at::Tensor& table, const Call& call) const {
  const Range own = call.place.operands[1].front();
  const at::Tensor places = (ids - own.begin).flatten();
  const at::Tensor is_here = (places >= 0).logical_and(places < own.size());
  std::vector<int64_t> shape = ids.sizes().vec();
  shape.insert(shape.end(), table.sizes().begin() + 1, table.sizes().end());
  if (own.size() == 0) return table.sum() * at::zeros(shape, table.options());
  const at::Tensor rows = table.index_select(0, places.clamp(0, own.size() - 1));
  return at::where(is_here.unsqueeze(-1), rows.flatten(1), at::zeros({1}, table.options())).reshape(shape);
}

/// Every expert has room for all rows; rows that do not go to it are 0.
at::Tensor LocalOperator::compute_dispatch(const std::vector<at::Tensor>& x, const Call& call) const {
  const at::Tensor goes = (x[1].detach() != 0).flatten(0, -2).t().unsqueeze(-1);  // [experts, rows, 1]
  return (x[0].flatten(0, -2).unsqueeze(0) * goes.to(x[0].scalar_type())).view(call.place.result_shape);
}

at::Tensor LocalOperator::compute_custom(const std::vector<at::Tensor>& x, const Call& call) const {
  const auto sum_inside = [&](const at::Tensor& own) { return summed_inside(own, false, call); };
  const at::Tensor result = custom_(x, {.op = op(),
                                        .parts = call.place.operands,
                                        .shapes = call.place.shapes,
                                        .result_shape = call.place.result_shape,
                                        .sum_inside = sum_inside,
                                        .owns_first = owns_first_});
  if (result.sizes() != at::IntArrayRef(call.place.result_shape))
    throw WrongCall(fmt::format("{}: its function made {}, its rule says {}", op().name,
                                shape_text({result.sizes().data(), result.sizes().size()}),
                                shape_text(call.place.result_shape)));
  return result;
}

DropoutKey LocalOperator::dropout_key_of(const RunDraws& draws) const {
  const DropoutDraws all{.seed = draws.seed, .step = draws.step, .rows = {}, .all_rows = {}};
  if (draws.layer) return dropout_key(all, draws.layer->number, draws.layer->sites[index_]);
  return dropout_key(all, draws.first_operator + static_cast<int64_t>(index_), DropoutSite::kProgram);
}

at::Tensor LocalOperator::numbers_of(size_t num_dims, const Call& call) const {
  const Box& own = call.place.operands[0];
  if (call.draws.layer) {
    // Rows of one sample, before their features.
    const Range rows = own[own.size() - 2];
    return call.draws.layer->rows.narrow(0, rows.begin, own[0].empty() ? 0 : rows.size());
  }
  const std::vector<size_t>& dims = program_->values[op().operands[0]].dims;
  at::Tensor numbers = at::zeros({1}, at::kLong);
  for (size_t dim = 0; dim < num_dims; ++dim) {
    at::Tensor places = at::arange(own[dim].begin, own[dim].end, at::kLong);
    if (dim == 0 && call.draws.sample_dim == dims[0] && !own[0].empty())
      places = at::tensor(call.draws.samples, at::kLong).index_select(0, places);
    numbers = (numbers.unsqueeze(1) * call.place.shapes[0][dim] + places.unsqueeze(0)).flatten();
  }
  return numbers;
}

at::Tensor LocalOperator::compute_dropout(const at::Tensor& x, const Call& call) const {
  if (op().calculation.dropout == 0 || !call.draws.drops) return aligned(x, 0);
  const Box& own = call.place.operands[0];
  const at::Tensor rows = numbers_of(own.empty() ? 0 : own.size() - 1, call);
  const int64_t width = own.empty() ? 1 : own.back().size();
  const at::Tensor dropped = drop_elements(x.reshape({rows.size(0), width}), rows, op().calculation.dropout,
                                           dropout_key_of(call.draws), own.empty() ? 0 : own.back().begin);
  return aligned(dropped.reshape(x.sizes()), 0);
}

}  // namespace weft
