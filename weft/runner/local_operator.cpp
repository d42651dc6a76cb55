#include "weft/runner/local_operator.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/einsum.h>
#include <ATen/ops/full.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include "weft/base/check.h"
#include "weft/base/text.h"
#include "weft/layers/activation.h"
#include "weft/layers/dropout.h"
#include "weft/mesh/transition.h"
#include "weft/program/value_layout.h"
#include "weft/tensor/local_tensor.h"

namespace weft {
namespace {

/// The axes, of more than one rank, on which an operator cuts a dim that is inside.
AxisList inside_axes(const Operator& op, const std::vector<Choice>& choices, const AxisGrid& grid) {
  AxisList axes;
  for (size_t axis = 0; axis < choices.size(); ++axis) {
    const Choice choice = choices[axis];
    if (choice.kind == Choice::Kind::kCut && op.rule.dims[choice.index].kind == DimKind::kInside && grid.size(axis) > 1)
      axes.push_back(axis);
  }
  return axes;
}

/// One letter for each dim of the tensors of a rule: what is joined in one tensor is one dim.
class Letters {
 public:
  std::string of(const RuleTerm& term) {
    std::string text;
    for (const std::vector<size_t>& parts : term) {
      const auto [found, is_new] = letters_.emplace(parts, static_cast<char>('a' + letters_.size()));
      text += found->second;
    }
    return text;
  }

 private:
  std::map<std::vector<size_t>, char> letters_;
};

/// Keys and values of packed groups of queries, a key and a value: their layout, cut like the packed rows.
Layout keys_layout(const Layout& packed, const Attention& attention) {
  const int64_t group = (attention.heads / attention.kv_heads + 2) * attention.head_dim, own = 2 * attention.head_dim;
  std::vector<int64_t> shape = packed.shape();
  shape.back() = shape.back() / group * own;
  std::vector<PartSizes> sizes;
  for (size_t dim = 0; dim < shape.size(); ++dim) {
    if (packed.shard_axes(dim).empty()) continue;
    std::vector<int64_t> parts = packed.split(dim).sizes();
    if (dim + 1 == shape.size()) {
      for (int64_t& part : parts) part = part / group * own;
    }
    sizes.push_back({dim, std::move(parts)});
  }
  return *Layout::create(packed.grid(), shape, packed.states(), sizes);
}

/// Whether a query at a place sees a key at another, [queries, keys].
at::Tensor seen_keys(const Attention& attention, const at::Tensor& queries, const at::Tensor& keys) {
  const at::Tensor q = queries.unsqueeze(1), k = keys.unsqueeze(0);
  switch (attention.mask) {
    case Mask::kFull:
      return at::ones({queries.size(0), keys.size(0)}, queries.options().dtype(at::kBool));
    case Mask::kCausal:
      return q >= k;
    case Mask::kSliding:
      return (q >= k).logical_and(q - k < attention.window);
    case Mask::kWindowed:
      return q.div(attention.window, "floor") == k.div(attention.window, "floor");
  }
  WEFT_CHECK(false, "a mask without a rule");
}

std::optional<std::string> what_is_missing(const Program& program, const Operator& op) {
  switch (op.kind) {
    case OperatorKind::kElementwise:
      if (!op.calculation.function) return "does not say what it does ('does silu')";
      return std::nullopt;
    case OperatorKind::kDispatch:
    case OperatorKind::kCombine:
      return "sends rows to experts, which programs do not run yet";
    case OperatorKind::kCustom:
      return "is custom, and nobody has said what it computes";
    default:
      break;
  }
  // Only a function of elements, a reshape and attention make other lengths of the same units.
  if (op.kind == OperatorKind::kReshape || op.kind == OperatorKind::kAttention) return std::nullopt;
  std::map<std::vector<size_t>, int64_t> lengths;
  for (size_t i = 0; i <= op.operands.size(); ++i) {
    const bool is_result = i == op.operands.size();
    const ProgramValue& value = program.values[is_result ? op.result : op.operands[i]];
    const RuleTerm& term = is_result ? op.rule.result : op.rule.operands[i];
    for (size_t place = 0; place < term.size(); ++place) {
      const int64_t length = program.dims[value.dims[place]].length;
      const auto [known, is_new] = lengths.emplace(term[place], length);
      if (known->second != length)
        return fmt::format("has {} and {} elements in one dim of its rule", known->second, length);
    }
  }
  return std::nullopt;
}

}  // namespace

LocalOperator::LocalOperator(const Program& program, size_t op, std::vector<Layout> operands, Layout result,
                             const MeshGroups& groups)
    : program_(&program),
      index_(op),
      operands_(std::move(operands)),
      result_(std::move(result)),
      position_(groups.position()) {}

Result<LocalOperator> LocalOperator::create(const Program& program, size_t op, const std::vector<Choice>& choices,
                                            std::vector<Layout> operands, Layout result, const MeshGroups& groups) {
  const Operator& described = program.operators[op];
  if (const auto missing = what_is_missing(program, described))
    return Error{
        .field = described.name, .problem = *missing, .advice = "It can be planned with 'weft shard', but not run."};
  LocalOperator local(program, op, std::move(operands), std::move(result), groups);
  const AxisList inside = inside_axes(described, choices, groups.mesh().grid());
  if (inside.empty()) return local;
  if (described.kind != OperatorKind::kAttention) {
    local.inside_ = groups.along(inside);
    local.inside_traffic_ = local.traffic_of_sums(groups.mesh().grid(), inside);
    return local;
  }
  const Layout cut = keys_layout(local.operands_[0], described.attention);
  std::vector<AxisState> states = cut.states();
  for (const size_t axis : inside) states[axis] = AxisState::replicated_partial_grad();
  std::vector<PartSizes> sizes;
  for (size_t dim = 0; dim < cut.num_dims(); ++dim) {
    const bool stays =
        std::any_of(states.begin(), states.end(), [&](const AxisState& s) { return s.is_shard() && s.dim == dim; });
    if (stays) sizes.push_back({dim, cut.split(dim).sizes()});
  }
  const Layout whole = *Layout::create(cut.grid(), cut.shape(), states, sizes);
  const Transition transition = plan_transition(cut, whole);
  local.gather_keys_.emplace(transition.forward, groups);
  local.return_keys_.emplace(transition.adjoint, groups);
  local.inside_traffic_ = traffic_of(transition.forward, local.position_);
  local.inside_traffic_ += traffic_of(transition.adjoint, local.position_);
  return local;
}

/// One or two numbers a row go round for each of its sums.
Traffic LocalOperator::traffic_of_sums(const AxisGrid& grid, const AxisList& axes) const {
  int64_t rows = 1;
  const std::vector<int64_t> shape = operands_[0].local_shape(position_);
  for (size_t dim = 0; dim + 1 < shape.size(); ++dim) rows *= shape[dim];
  std::vector<int64_t> numbers;  // of each sum, in a forward and a backward
  if (op().kind == OperatorKind::kNorm)
    numbers = op().operands.size() == 3 ? std::vector<int64_t>{2, 2} : std::vector<int64_t>{1, 1};
  if (op().kind == OperatorKind::kSoftmax) numbers = {1, 1, 1};
  if (op().kind == OperatorKind::kCrossEntropy) numbers = {1, 2};
  Traffic traffic;
  for (const int64_t number : numbers)
    traffic += all_reduce_traffic(number * rows, grid.group_size(axes), grid.group_index(position_, axes));
  return traffic;
}

at::Tensor LocalOperator::forward(const std::vector<at::Tensor>& operands, const RunDraws& draws, Kept& kept) const {
  const at::AutoGradMode with_graph(true);
  for (size_t i = 0; i < operands.size(); ++i)
    kept.leaves.push_back(operands[i].detach().set_requires_grad(program_->has_gradient(op().operands[i])));
  kept.result = compute(draws, kept);
  return kept.result.detach();
}

std::vector<at::Tensor> LocalOperator::backward(const at::Tensor& gradient, Kept kept) const {
  std::vector<at::Tensor> wanted, found(kept.leaves.size());
  std::vector<size_t> places;
  for (size_t i = 0; i < kept.leaves.size(); ++i) {
    if (!kept.leaves[i].requires_grad()) continue;
    wanted.push_back(kept.leaves[i]);
    places.push_back(i);
  }
  std::vector<at::Tensor> of_joins(kept.joins.size());
  const auto go_back = [&](const at::Tensor& from, const at::Tensor& slope) {
    if (!from.requires_grad()) return;
    std::vector<at::Tensor> ends = wanted;
    for (const Kept::Join& join : kept.joins) ends.push_back(join.leaf);
    const auto slopes = torch::autograd::grad({from}, ends, {slope}, /*retain_graph=*/true, /*create_graph=*/false,
                                              /*allow_unused=*/true);
    const auto add = [](at::Tensor& sum, const at::Tensor& more) {
      if (more.defined()) sum = sum.defined() ? sum + more : more;
    };
    for (size_t i = 0; i < places.size(); ++i) add(found[places[i]], slopes[i]);
    for (size_t j = 0; j < kept.joins.size(); ++j) add(of_joins[j], slopes[places.size() + j]);
  };
  go_back(kept.result, gradient);
  for (size_t j = kept.joins.size(); j-- > 0;) {
    const Kept::Join& join = kept.joins[j];
    const at::Tensor own = of_joins[j].defined() ? of_joins[j] : at::zeros_like(join.leaf);
    go_back(join.sent, join.back(own));
  }
  for (const size_t i : places) {
    if (!found[i].defined()) found[i] = at::zeros_like(kept.leaves[i]);
  }
  return found;
}

at::Tensor LocalOperator::compute(const RunDraws& draws, Kept& kept) const {
  const std::vector<at::Tensor>& x = kept.leaves;
  switch (op().kind) {
    case OperatorKind::kEinsum:
    case OperatorKind::kMultiply:
    case OperatorKind::kSum:
      return compute_products(x);
    case OperatorKind::kAdd: {
      at::Tensor sum = aligned(x[0], op().rule.operands[0]).expand(result_.local_shape(position_));
      for (size_t i = 1; i < x.size(); ++i) sum = sum + aligned(x[i], op().rule.operands[i]);
      return sum;
    }
    case OperatorKind::kElementwise:
      return compute_function(x);
    case OperatorKind::kScale:
      return aligned(x[0], op().rule.operands[0]) * op().calculation.factor;
    case OperatorKind::kDropout:
      return compute_dropout(x[0], draws);
    case OperatorKind::kReshape:
      return compute_reshape(x[0]);
    case OperatorKind::kNorm:
      return compute_norm(x, kept);
    case OperatorKind::kSoftmax:
      return compute_softmax(x[0], kept);
    case OperatorKind::kAttention:
      return compute_attention(x[0], kept);
    case OperatorKind::kLookup:
      return compute_lookup(x[0], x[1]);
    case OperatorKind::kCrossEntropy:
      return compute_loss(x[0], x[1], kept);
    case OperatorKind::kDispatch:
    case OperatorKind::kCombine:
    case OperatorKind::kCustom:
      break;
  }
  WEFT_CHECK(false, "{} is run without a rule for it", op().name);
}

at::Tensor LocalOperator::aligned(const at::Tensor& x, const RuleTerm& term) const {
  const RuleTerm& result = op().rule.result;
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

at::Tensor LocalOperator::compute_products(const std::vector<at::Tensor>& x) const {
  Letters letters;
  std::string equation;
  for (const RuleTerm& term : op().rule.operands) equation += (equation.empty() ? "" : ",") + letters.of(term);
  equation += "->" + letters.of(op().rule.result);
  return at::einsum(equation, x);
}

at::Tensor LocalOperator::compute_function(const std::vector<at::Tensor>& x) const {
  const Activation function = *op().calculation.function;
  at::Tensor first = aligned(x[0], op().rule.operands[0]);
  const std::vector<int64_t> shape = result_.local_shape(position_);
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
    const at::Tensor halves = first.unflatten(dim, {-1, 2, to.unit});
    y = activate(halves.select(dim + 1, 0), function) * halves.select(dim + 1, 1);
    y = y.flatten(dim, dim + 1);
  }
  if (!y.defined()) y = activate(first, function);
  for (size_t i = 1; i < x.size(); ++i) y = y * aligned(x[i], op().rule.operands[i]);
  return y.expand(shape);
}

at::Tensor LocalOperator::compute_reshape(const at::Tensor& x) const {
  const RuleTerm& from = op().rule.operands[0];
  const RuleTerm& to = op().rule.result;
  // The lengths that dims of the rule have here: those of tensors that have them alone.
  std::vector<int64_t> lengths(op().rule.dims.size(), -1);
  const std::vector<int64_t> made = result_.local_shape(position_);
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

at::Tensor LocalOperator::summed_inside(const at::Tensor& x, bool is_shared, Kept& kept) const {
  if (!inside_) return x;
  const auto sum = [this](const at::Tensor& own) {
    Group group = *inside_;
    at::Tensor total = own.detach().clone(at::MemoryFormat::Contiguous);
    group.all_reduce(buffer_of(total), Reduction::kSum).wait();
    return total;
  };
  at::Tensor leaf = sum(x).set_requires_grad(true);
  const auto back = is_shared
                        ? std::function<at::Tensor(const at::Tensor&)>([](const at::Tensor& slope) { return slope; })
                        : std::function<at::Tensor(const at::Tensor&)>(sum);
  kept.joins.push_back({.sent = x, .leaf = leaf, .back = back});
  return leaf;
}

at::Tensor LocalOperator::largest_inside(const at::Tensor& x) const {
  const at::NoGradGuard no_graph;
  at::Tensor largest = x.size(-1) > 0 ? x.detach().amax(-1, /*keepdim=*/true)
                                      : at::full({1}, -std::numeric_limits<double>::infinity(), x.options())
                                            .expand(x.sum(-1, /*keepdim=*/true).sizes());
  largest = largest.clone(at::MemoryFormat::Contiguous);
  if (inside_) {
    Group group = *inside_;
    group.all_reduce(buffer_of(largest), Reduction::kMax).wait();
  }
  return largest;
}

at::Tensor LocalOperator::compute_norm(const std::vector<at::Tensor>& x, Kept& kept) const {
  const auto width = static_cast<double>(operands_[0].shape().back());
  const double epsilon = op().calculation.epsilon;
  at::Tensor normed;
  if (x.size() == 3 && !inside_) {
    const at::Tensor centred = x[0] - x[0].mean(-1, /*keepdim=*/true);
    normed = centred * (centred.square().mean(-1, /*keepdim=*/true) + epsilon).rsqrt();
  } else if (x.size() == 3) {
    // Both sums in one exchange; numbers here are fp64.
    const at::Tensor sums = summed_inside(at::stack({x[0].sum(-1), x[0].square().sum(-1)}), false, kept);
    const at::Tensor mean = sums[0] / width, variance = sums[1] / width - mean.square();
    normed = (x[0] - mean.unsqueeze(-1)) * (variance + epsilon).rsqrt().unsqueeze(-1);
  } else {
    const at::Tensor squares = summed_inside(x[0].square().sum(-1), false, kept);
    normed = x[0] * (squares / width + epsilon).rsqrt().unsqueeze(-1);
  }
  normed = aligned(normed, op().rule.operands[0]);
  if (x.size() > 1) normed = normed * aligned(x[1], op().rule.operands[1]);
  return x.size() > 2 ? normed + aligned(x[2], op().rule.operands[2]) : normed;
}

at::Tensor LocalOperator::compute_softmax(const at::Tensor& x, Kept& kept) const {
  const at::Tensor powers = (x - largest_inside(x)).exp();
  return aligned(powers / summed_inside(powers.sum(-1, /*keepdim=*/true), false, kept), op().rule.operands[0]);
}

at::Tensor LocalOperator::compute_loss(const at::Tensor& x, const at::Tensor& targets, Kept& kept) const {
  const Range own = box(0).back();
  const at::Tensor largest = largest_inside(x);
  const at::Tensor places = targets - own.begin;
  const at::Tensor is_here = (places >= 0).logical_and(places < own.size());
  at::Tensor chosen = at::zeros_like(x.sum(-1));
  if (own.size() > 0)
    chosen = at::where(is_here, x.gather(-1, places.clamp(0, own.size() - 1).unsqueeze(-1)).squeeze(-1), chosen);
  const at::Tensor sums = summed_inside(at::stack({(x - largest).exp().sum(-1), chosen}), true, kept);
  const at::Tensor loss = sums[0].log() + largest.squeeze(-1) - sums[1];
  return aligned(at::where(targets >= 0, loss, at::zeros_like(loss)), op().rule.operands[1]);
}

at::Tensor LocalOperator::compute_lookup(const at::Tensor& ids, const at::Tensor& table) const {
  const Range own = box(1).front();
  const at::Tensor places = (ids - own.begin).flatten();
  const at::Tensor is_here = (places >= 0).logical_and(places < own.size());
  std::vector<int64_t> shape = ids.sizes().vec();
  shape.insert(shape.end(), table.sizes().begin() + 1, table.sizes().end());
  if (own.size() == 0) return table.sum() * at::zeros(shape, table.options());
  const at::Tensor rows = table.index_select(0, places.clamp(0, own.size() - 1));
  return at::where(is_here.unsqueeze(-1), rows.flatten(1), at::zeros({1}, table.options())).reshape(shape);
}

at::Tensor LocalOperator::compute_attention(const at::Tensor& x, Kept& kept) const {
  const Attention& a = op().attention;
  const int64_t queries = a.heads / a.kv_heads, rows_dim = x.dim() - 2;
  const at::Tensor groups = x.unflatten(-1, {-1, queries + 2, a.head_dim});
  const at::Tensor q = groups.narrow(-2, 0, queries);
  at::Tensor keys = groups.narrow(-2, queries, 2);
  const Range own = box(0)[static_cast<size_t>(rows_dim)];
  const auto places = [&](Range range) {
    return at::arange(range.begin, range.end, at::TensorOptions(at::kLong).device(x.device()));
  };
  Range all = own;
  if (gather_keys_) {
    const at::Tensor sent = keys.flatten(-3).contiguous();
    const at::Tensor leaf = gather_keys_->run(sent.detach()).detach().set_requires_grad(true);
    kept.joins.push_back({.sent = sent, .leaf = leaf, .back = [this](const at::Tensor& slope) {
                            return return_keys_->run(slope.contiguous());
                          }});
    keys = leaf.unflatten(-1, {-1, 2, a.head_dim});
    all = {0, operands_[0].shape()[static_cast<size_t>(rows_dim)]};
  }
  const at::Tensor k = keys.select(-2, 0), v = keys.select(-2, 1);
  at::Tensor scores = at::einsum("...igqd,...jgd->...gqij", {q, k}) / std::sqrt(static_cast<double>(a.head_dim));
  const at::Tensor is_seen = seen_keys(a, places(own), places(all));
  scores = at::where(is_seen, scores, at::full({}, -std::numeric_limits<double>::infinity(), x.options()));
  return at::einsum("...gqij,...jgd->...igqd", {at::softmax(scores, -1), v}).flatten(-3);
}

at::Tensor LocalOperator::compute_dropout(const at::Tensor& x, const RunDraws& draws) const {
  if (op().calculation.dropout == 0) return aligned(x, op().rule.operands[0]);
  // Rows are numbered as in the whole tensor.
  const Box own = box(0);
  at::Tensor rows = at::zeros({1}, at::kLong);
  for (size_t dim = 0; dim + 1 < own.size(); ++dim) {
    const at::Tensor places = at::arange(own[dim].begin, own[dim].end, at::kLong);
    rows = (rows.unsqueeze(1) * operands_[0].shape()[dim] + places.unsqueeze(0)).flatten();
  }
  const DropoutDraws all{.seed = draws.seed, .step = draws.step, .rows = rows, .all_rows = {}};
  const DropoutKey key = dropout_key(all, static_cast<int64_t>(index_), DropoutSite::kProgram);
  const int64_t width = own.empty() ? 1 : own.back().size();
  const at::Tensor dropped = drop_elements(x.reshape({rows.size(0), width}), rows, op().calculation.dropout, key,
                                           own.empty() ? 0 : own.back().begin);
  return aligned(dropped.reshape(x.sizes()), op().rule.operands[0]);
}

}  // namespace weft
