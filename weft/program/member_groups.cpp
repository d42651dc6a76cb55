#include "weft/program/member_groups.h"

#include <algorithm>

#include "weft/program/custom_functions.h"

namespace weft {
namespace {

using Kind = MemberGroup::Kind;

bool is_weight_value(const Program& program, size_t value) {
  return program.values[value].role == ProgramValue::Role::kWeight;
}

/// Rows times a weight as it is.
bool is_product(const Program& program, const Operator& op) {
  return op.kind == OperatorKind::kEinsum && is_linear_rule(op.rule) && is_weight_value(program, op.operands[1]) &&
         !is_weight_value(program, op.operands[0]);
}

/// Rows plus a weight of their width.
bool is_bias(const Program& program, const Operator& op) {
  return op.kind == OperatorKind::kAdd && op.operands.size() == 2 && is_weight_value(program, op.operands[1]) &&
         op.rule.operands[0] == op.rule.result && op.rule.operands[1].size() == 1 && !op.rule.result.empty() &&
         op.rule.operands[1][0] == op.rule.result.back();
}

bool is_activation(const Operator& op) {
  return op.kind == OperatorKind::kElementwise && op.operands.size() == 1 && op.calculation.function &&
         op.rule.operands[0] == op.rule.result && !op.rule.result.empty();
}

bool is_sum_of_two(const Operator& op) {
  return op.kind == OperatorKind::kAdd && op.operands.size() == 2 && op.rule.operands[0] == op.rule.result &&
         op.rule.operands[1] == op.rule.result;
}

}  // namespace

bool is_linear_rule(const Rule& rule) {
  if (rule.operands.size() != 2 || rule.operands[1].size() != 2 || rule.operands[0].empty()) return false;
  RuleTerm result = rule.operands[0];
  if (result.back() != rule.operands[1][1]) return false;
  result.back() = rule.operands[1][0];
  return result == rule.result && rule.operands[1][0] != rule.operands[1][1] &&
         std::find(rule.operands[0].begin(), rule.operands[0].end(), rule.operands[1][0]) == rule.operands[0].end();
}

bool is_norm_of_rows(const Program& program, const Operator& op) {
  if (op.kind != OperatorKind::kNorm || op.rule.result != op.rule.operands[0] || op.operands.size() < 2) return false;
  for (size_t i = 1; i < op.operands.size(); ++i) {
    const RuleTerm& term = op.rule.operands[i];
    if (!is_weight_value(program, op.operands[i]) || term.size() != 1 || term[0] != op.rule.result.back()) return false;
  }
  return true;
}

bool is_gate(const Program& program, const Operator& op) {
  if (op.kind != OperatorKind::kElementwise || op.rule.result.empty() ||
      op.rule.operands[0].back() != op.rule.result.back())
    return false;
  const ProgramDim& from = program.dims[program.values[op.operands[0]].dims.back()];
  return from.length == 2 * program.dims[program.values[op.result].dims.back()].length;
}

bool owns_first(const ProgramFlow& flow, size_t op) {
  const Program& program = *flow.program;
  for (const FlowSegment& segment : flow.segments) {
    for (const FlowSegment::Member& member : segment.members) {
      if (member.op != op) continue;
      if (member.reads.empty() || member.reads[0].is_leaf) return false;
      const size_t value = member.reads[0].index;
      const auto maker = std::find_if(program.operators.begin(), program.operators.end(),
                                      [&](const Operator& other) { return other.result == value; });
      const auto& operands = program.operators[op].operands;
      const bool is_of_heads = maker->kind == OperatorKind::kCustom &&
                               (function_of(*maker) == "norm_queries" || function_of(*maker) == "norm_keys");
      const bool keeps_result =
          !is_of_heads && ((maker->kind != OperatorKind::kEinsum && maker->kind != OperatorKind::kAdd) ||
                           maker->operands.size() < 2);  // one operand may just be looked at otherwise
      return !keeps_result && program.readers_of(value).size() == 1 &&
             std::count(operands.begin(), operands.end(), value) == 1;
    }
  }
  return false;
}

std::vector<MemberGroup> groups_of(const ProgramFlow& flow, const FlowSegment& segment) {
  const Program& program = *flow.program;
  const std::vector<FlowSegment::Member>& members = segment.members;
  const auto op_of = [&](size_t member) -> const Operator& { return program.operators[members[member].op]; };
  // Whether the next member reads what a member made, as its first operand and here alone.
  const auto goes_to_next = [&](size_t member) {
    if (member + 1 >= members.size()) return false;
    const FlowSegment::Read& read = members[member + 1].reads[0];
    return !read.is_leaf && read.index == op_of(member).result;
  };
  const auto is_for_next = [&](size_t member) {
    return goes_to_next(member) && program.readers_of(op_of(member).result).size() == 1;
  };
  std::vector<MemberGroup> groups;
  for (size_t next = 0; next < members.size();) {
    MemberGroup group{.first = next};
    const Operator& op = op_of(next);
    group.has_activation = is_activation(op) && is_for_next(next) && is_product(program, op_of(next + 1));
    if (group.has_activation || is_product(program, op)) {
      group.kind = Kind::kProduct;
      const size_t product = group.product();
      group.has_bias = is_for_next(product) && is_bias(program, op_of(product + 1));
      group.count = 1 + (group.has_activation ? 1 : 0) + (group.has_bias ? 1 : 0);
    } else if (is_sum_of_two(op) && flow.inside_axes(members[next].op).empty() && goes_to_next(next) &&
               is_norm_of_rows(program, op_of(next + 1))) {
      group.kind = Kind::kSumAndNorm;
      group.count = 2;
    }
    next += group.count;
    groups.push_back(group);
  }
  return groups;
}

}  // namespace weft
