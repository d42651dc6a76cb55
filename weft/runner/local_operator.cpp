#include "weft/runner/local_operator.h"

#include <algorithm>
#include <limits>
#include <map>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <fmt/format.h>

#include "weft/base/check.h"
#include "weft/base/text.h"
#include "weft/program/member_groups.h"
#include "weft/program/operator_rules.h"
#include "weft/program/value_layout.h"
#include "weft/tensor/local_tensor.h"

namespace weft {
namespace {

/// One letter for each dim of the tensors of a rule: what is joined in one tensor is one dim.
std::string equation_of(const Rule& rule) {
  std::map<std::vector<size_t>, char> letters;
  const auto text_of = [&](const RuleTerm& term) {
    std::string text;
    for (const std::vector<size_t>& parts : term)
      text += letters.emplace(parts, static_cast<char>('a' + letters.size())).first->second;
    return text;
  };
  std::string equation;
  for (const RuleTerm& term : rule.operands) equation += (equation.empty() ? "" : ",") + text_of(term);
  return equation + "->" + text_of(rule.result);
}

/// "e (b s) h" beside "b s h" and "b s e".
bool is_of_experts(const RuleTerm& sent, const RuleTerm& rows, const RuleTerm& routes) {
  if (sent.size() != 3 || rows.size() < 2 || routes.size() != rows.size()) return false;
  std::vector<size_t> joined;
  for (size_t i = 0; i + 1 < rows.size(); ++i) {
    if (rows[i].size() != 1 || routes[i] != rows[i]) return false;
    joined.push_back(rows[i][0]);
  }
  return sent[0] == routes.back() && sent[1] == joined && sent[2] == rows.back();
}

std::optional<std::string> what_is_missing(const Program& program, const Operator& op, const CustomOperators& custom) {
  switch (op.kind) {
    case OperatorKind::kElementwise:
      if (!op.calculation.function) return "does not say what it does ('does silu')";
      break;
    case OperatorKind::kDispatch:
      if (op.operands.size() != 2 || !is_of_experts(op.rule.result, op.rule.operands[0], op.rule.operands[1]))
        return "does not say which rows go where, like 'b s h, b s e -> e (b s) h'";
      return std::nullopt;
    case OperatorKind::kCombine:
      if (!is_of_experts(op.rule.operands[0], op.rule.result, op.rule.operands[1]))
        return "does not say whose rows come back, like 'e (b s) h, b s e -> b s h'";
      return std::nullopt;
    case OperatorKind::kCustom:
      if (custom.find(op) == nullptr)
        return fmt::format("is custom, and nobody has said what it computes ('calls NAME'; known are {})",
                           joined_or(custom.names()));
      return std::nullopt;
    default:
      break;
  }
  return find_other_lengths(program, op);
}

}  // namespace

Result<LocalOperator> LocalOperator::create(const ProgramFlow& flow, size_t op, const MeshGroups& groups,
                                            const CustomOperators& custom) {
  const Program& program = *flow.program;
  const Operator& described = program.operators[op];
  if (const auto missing = what_is_missing(program, described, custom))
    return Error{
        .field = described.name, .problem = *missing, .advice = "It can be planned with 'weft shard', but not run."};
  LocalOperator local(program, op, flow.choices[op], groups);
  local.equation_ = equation_of(described.rule);
  if (described.kind == OperatorKind::kCustom) {
    local.custom_ = *custom.find(described);
    local.owns_first_ = owns_first(flow, op);
  }
  local.inside_axes_ = flow.inside_axes(op);
  if (local.inside_axes_.empty()) return local;
  if (described.kind == OperatorKind::kAttention) {
    local.keys_ = keys_form(flow, op);
  } else {
    local.inside_ = groups.along(local.inside_axes_);
  }
  return local;
}

OperatorPlace LocalOperator::place(const RunLengths& lengths) const {
  const AxisGrid& grid = groups_.mesh().grid();
  const int64_t position = groups_.position();
  OperatorPlace place;
  for (size_t i = 0; i < op().operands.size(); ++i) {
    const Layout layout =
        *value_layout(*program_, lengths, grid, op().operands[i], operand_states(*program_, op(), choices_, i));
    place.operands.push_back(layout.box(position));
    place.shapes.push_back(layout.shape());
  }
  place.result_shape =
      value_layout(*program_, lengths, grid, op().result, result_states(op(), choices_))->local_shape(position);
  if (keys_) {
    const auto layout_of = [&](const std::vector<AxisState>& states) {
      return keys_layout(*program_, index_, grid, lengths, states);
    };
    const std::vector<Step> there = keys_->forward(layout_of), back = keys_->adjoint(layout_of);
    place.gather_keys.emplace(there, groups_);
    place.return_keys.emplace(back, groups_);
    place.forward_inside = traffic_of(there, position);
    place.backward_inside = traffic_of(back, position);
  } else if (inside_) {
    const InsideSums sums = inside_sums(op());
    place.forward_inside = traffic_of_sums(place, sums.forward);
    place.backward_inside = traffic_of_sums(place, sums.backward);
  }
  return place;
}

Traffic LocalOperator::traffic_of_sums(const OperatorPlace& place, const std::vector<int64_t>& numbers) const {
  const AxisGrid& grid = groups_.mesh().grid();
  int64_t rows = 1;
  for (size_t dim = 0; dim + 1 < place.operands[0].size(); ++dim) rows *= place.operands[0][dim].size();
  Traffic traffic;
  for (const int64_t number : numbers)
    traffic += all_reduce_traffic(number * rows, grid.group_size(inside_axes_),
                                  grid.group_index(groups_.position(), inside_axes_));
  return traffic;
}

at::Tensor LocalOperator::summed_inside(const at::Tensor& x, bool is_shared, const Call& call) const {
  if (!inside_) return x;
  const auto sum = [group = *inside_](const at::Tensor& own) {
    at::Tensor total = own.detach().clone(at::MemoryFormat::Contiguous);
    Group(group).all_reduce(buffer_of(total), Reduction::kSum).wait();
    return total;
  };
  if (!x.requires_grad()) return sum(x);
  const auto back = is_shared
                        ? std::function<at::Tensor(const at::Tensor&)>([](const at::Tensor& slope) { return slope; })
                        : std::function<at::Tensor(const at::Tensor&)>(sum);
  return call.graph.add_join(x, sum(x), back);
}

at::Tensor LocalOperator::largest_inside(const at::Tensor& x) const {
  const at::NoGradGuard no_graph;
  at::Tensor largest = x.size(-1) > 0 ? x.detach().amax(-1, /*keepdim=*/true)
                                      : at::full({1}, -std::numeric_limits<double>::infinity(), x.options())
                                            .expand(x.sum(-1, /*keepdim=*/true).sizes());
  largest = largest.to(sum_type(x.scalar_type())).clone(at::MemoryFormat::Contiguous);
  if (inside_) {
    Group group = *inside_;
    group.all_reduce(buffer_of(largest), Reduction::kMax).wait();
  }
  return largest;
}

}  // namespace weft
