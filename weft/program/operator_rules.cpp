#include "weft/program/operator_rules.h"

#include <algorithm>
#include <map>
#include <numeric>

#include <fmt/format.h>

#include "weft/base/text.h"

namespace weft {
namespace {

std::vector<std::vector<size_t>> each_alone(size_t num_operands) {
  std::vector<std::vector<size_t>> sets;
  for (size_t i = 0; i < num_operands; ++i) sets.push_back({i});
  return sets;
}

std::vector<std::vector<size_t>> all_together(size_t num_operands) {
  std::vector<size_t> all(num_operands);
  std::iota(all.begin(), all.end(), size_t{0});
  return {all};
}

/// How many operands a kind takes, and whether it sums over dims that its result lacks.
struct KindShape {
  size_t fewest = 1;
  size_t most = 1;
  bool sums = false;
};

KindShape shape_of(OperatorKind kind) {
  switch (kind) {
    case OperatorKind::kEinsum:
      return {.fewest = 1, .most = 4, .sums = true};
    case OperatorKind::kAdd:
    case OperatorKind::kMultiply:
      return {.fewest = 2, .most = 8};
    case OperatorKind::kElementwise:
      return {.most = 4};
    case OperatorKind::kScale:
    case OperatorKind::kDropout:
    case OperatorKind::kReshape:
    case OperatorKind::kSoftmax:
    case OperatorKind::kAttention:
      return {};
    case OperatorKind::kSum:
      return {.sums = true};
    case OperatorKind::kNorm:
      return {.most = 3};
    case OperatorKind::kDispatch:
      return {.most = 2};
    case OperatorKind::kLookup:
    case OperatorKind::kCombine:
      return {.fewest = 2, .most = 2, .sums = true};
    case OperatorKind::kCrossEntropy:
      return {.fewest = 2, .most = 2, .sums = true};
    case OperatorKind::kCustom:
      break;
  }
  return {.fewest = 1, .most = 8, .sums = true};
}

void set_kind(Rule& rule, size_t dim, DimKind kind) {
  // What cannot be cut stays so.
  if (rule.dims[dim].kind != DimKind::kWhole) rule.dims[dim].kind = kind;
}

/// The last dim of the first operand is what a norm or a softmax goes over.
void set_last(Rule& rule, DimKind kind) {
  if (rule.operands[0].empty()) return;
  for (const size_t dim : rule.operands[0].back()) set_kind(rule, dim, kind);
}

bool have_same_dims(RuleTerm a, RuleTerm b) {
  std::sort(a.begin(), a.end());
  std::sort(b.begin(), b.end());
  return a == b;
}

/// A mistake of a rule, and how one is written.
struct WrongRule {
  std::string problem;
  std::string example;
};

/// What a kind computes has the dims that its result says.
std::optional<WrongRule> find_wrong_result(OperatorKind kind, const Rule& rule) {
  const RuleTerm& first = rule.operands[0];
  if (kind == OperatorKind::kCrossEntropy) {
    if (first.empty()) return WrongRule{"reads logits without a dim of classes", "b s v, b s -> b s"};
    const RuleTerm rows(first.begin(), first.end() - 1);
    if (rule.operands[1] != rows)
      return WrongRule{"has other targets than one for every row of its logits, whose last dim are classes",
                       "b s v, b s -> b s"};
    if (!have_same_dims(rule.result, rows))
      return WrongRule{"makes another result than a loss for every target; a sum behind it adds losses up",
                       "b s v, b s -> b s"};
  }
  if (kind == OperatorKind::kLookup) {
    const RuleTerm& table = rule.operands[1];
    if (table.empty()) return WrongRule{"reads a table without entries", "b s, v h -> b s h"};
    RuleTerm made = first;
    made.insert(made.end(), table.begin() + 1, table.end());
    if (rule.result != made)
      return WrongRule{"makes other rows than one entry of the table for every number that it reads",
                       "b s, v h -> b s h"};
  }
  if (kind == OperatorKind::kNorm) {
    for (size_t i = 1; i < rule.operands.size(); ++i) {
      if (first.empty() || rule.operands[i] != RuleTerm{first.back()})
        return WrongRule{"has a weight or a bias of another dim than the last one of its rows, which it norms",
                         "b s h, h -> b s h"};
    }
  }
  return std::nullopt;
}

}  // namespace

Result<Rule> complete_rule(OperatorKind kind, Rule rule) {
  const KindShape shape = shape_of(kind);
  const size_t num_operands = rule.operands.size();
  const auto refuse = [&](const std::string& what) {
    return Error{.problem = fmt::format("{} with the rule {} {}", name_of(kind), in_quotes(rule.text()), what),
                 .advice = "Correct the rule, or declare the operator as custom."};
  };
  if (num_operands < shape.fewest || num_operands > shape.most)
    return refuse(fmt::format("has {} operands, {} to {} are possible", num_operands, shape.fewest, shape.most));
  for (size_t dim = 0; dim < rule.dims.size(); ++dim) {
    if (!shape.sums && !has_dim(rule.result, dim))
      return refuse(fmt::format("sums over {}, which this kind does not", in_quotes(rule.dims[dim].name)));
    const bool is_read = std::any_of(rule.operands.begin(), rule.operands.end(),
                                     [&](const RuleTerm& operand) { return has_dim(operand, dim); });
    if (!is_read && kind != OperatorKind::kDispatch && kind != OperatorKind::kCustom)
      return refuse(fmt::format("makes {}, which no operand has", in_quotes(rule.dims[dim].name)));
  }
  if (const auto wrong = find_wrong_result(kind, rule))
    return Error{
        .problem = fmt::format("{} with the rule {} {}", name_of(kind), in_quotes(rule.text()), wrong->problem),
        .advice = fmt::format("Its rule is like {}.", in_quotes(wrong->example))};
  switch (kind) {
    case OperatorKind::kEinsum:
    case OperatorKind::kMultiply:
    case OperatorKind::kSum:
      rule.linear = each_alone(num_operands);
      break;
    case OperatorKind::kAdd:
      rule.linear = all_together(num_operands);
      break;
    case OperatorKind::kScale:
    case OperatorKind::kDropout:
    case OperatorKind::kReshape:
      rule.linear = {{0}};
      break;
    case OperatorKind::kDispatch:
      // Rows go to experts in any order, so that all dims of rows may be cut.
      for (const std::vector<size_t>& parts : rule.result) {
        for (const size_t dim : parts) rule.dims[dim].kind = DimKind::kMap;
      }
      rule.linear = {{0}};
      break;
    case OperatorKind::kCombine:
      for (const std::vector<size_t>& parts : rule.operands[0]) {
        for (const size_t dim : parts) rule.dims[dim].kind = has_dim(rule.result, dim) ? DimKind::kMap : DimKind::kSum;
      }
      rule.linear = each_alone(num_operands);
      break;
    case OperatorKind::kLookup:
      // Rows times a matrix that is one where a row reads an entry: linear in the table.
      rule.linear = {{1}};
      break;
    case OperatorKind::kNorm:
      set_last(rule, DimKind::kInside);
      // Rows are not linear in what is normed, but in the weight and the bias.
      if (num_operands == 2) rule.linear = {{1}};
      if (num_operands == 3) rule.linear = {{1, 2}};
      break;
    case OperatorKind::kSoftmax:
      set_last(rule, DimKind::kInside);
      break;
    case OperatorKind::kCrossEntropy:
      for (size_t dim = 0; dim < rule.dims.size(); ++dim) {
        if (!has_dim(rule.result, dim)) set_kind(rule, dim, DimKind::kInside);
      }
      break;
    case OperatorKind::kAttention: {
      // Rows, of which queries see keys; the last dim is heads.
      if (rule.operands[0].size() < 2) return refuse("has no dim of rows before that of heads");
      for (const size_t dim : rule.operands[0][rule.operands[0].size() - 2]) set_kind(rule, dim, DimKind::kInside);
      break;
    }
    case OperatorKind::kElementwise:
    case OperatorKind::kCustom:
      break;
  }
  return rule;
}

std::optional<std::string> find_other_lengths(const Program& program, const Operator& op) {
  if (op.kind == OperatorKind::kCustom || op.kind == OperatorKind::kDispatch || op.kind == OperatorKind::kCombine)
    return std::nullopt;
  if (op.kind == OperatorKind::kReshape) {
    const int64_t read = program.num_elements(op.operands[0]), made = program.num_elements(op.result);
    if (read == made) return std::nullopt;
    return fmt::format("makes {} elements of {}", with_commas(made), with_commas(read));
  }
  const bool is_function = op.kind == OperatorKind::kElementwise;
  std::map<std::vector<size_t>, int64_t> lengths;
  int64_t num_gates = 0;
  for (size_t i = op.operands.size() + 1; i-- > 0;) {
    const bool is_result = i == op.operands.size();
    const ProgramValue& value = program.values[is_result ? op.result : op.operands[i]];
    const RuleTerm& term = is_result ? op.rule.result : op.rule.operands[i];
    for (size_t place = 0; place < term.size(); ++place) {
      // Heads of queries, keys and values are read, heads of queries are made.
      if (op.kind == OperatorKind::kAttention && place + 1 == term.size()) continue;
      const int64_t length = program.dims[value.dims[place]].length;
      const auto [known, is_new] = lengths.emplace(term[place], length);
      if (known->second == length) continue;
      // A gate beside what it lets through.
      if (is_function && i == 0 && length == 2 * known->second && num_gates++ == 0) continue;
      return fmt::format("has {} and {} elements in one dim of its rule", known->second, length);
    }
  }
  return std::nullopt;
}

InsideTraffic inside_traffic(OperatorKind kind) {
  switch (kind) {
    case OperatorKind::kNorm:
      return {.form = InsideTraffic::Form::kSums, .forward_passes = 1, .backward_passes = 1};
    case OperatorKind::kSoftmax:
      return {.form = InsideTraffic::Form::kSums, .forward_passes = 2, .backward_passes = 1};
    case OperatorKind::kCrossEntropy:
      // The largest logit, the sum of exponentials and the target's logit; the gradient needs nobody else.
      return {.form = InsideTraffic::Form::kSums, .forward_passes = 3, .backward_passes = 0};
    case OperatorKind::kAttention:
      // Going back, keys and values come by again, and their gradients with them.
      return {.form = InsideTraffic::Form::kRing, .forward_passes = 1, .backward_passes = 2};
    default:
      return {.form = InsideTraffic::Form::kSums, .forward_passes = 1, .backward_passes = 1};
  }
}

bool keeps_operand(const Program& program, const Operator& op, size_t operand) {
  switch (op.kind) {
    case OperatorKind::kEinsum:
    case OperatorKind::kMultiply:
    case OperatorKind::kCombine:
      return op.operands.size() > 1;
    case OperatorKind::kElementwise:
    case OperatorKind::kNorm:
    case OperatorKind::kSoftmax:
    case OperatorKind::kAttention:
    case OperatorKind::kCrossEntropy:
      return true;
    case OperatorKind::kCustom: {
      // What a result is linear in is needed for the gradients of others alone.
      if (op.rule.linear != std::vector<std::vector<size_t>>{{operand}}) return true;
      for (size_t i = 0; i < op.operands.size(); ++i) {
        if (i != operand && program.has_gradient(op.operands[i])) return true;
      }
      return false;
    }
    case OperatorKind::kLookup:
      return operand == 0;
    case OperatorKind::kAdd:
    case OperatorKind::kScale:
    case OperatorKind::kDropout:
    case OperatorKind::kReshape:
    case OperatorKind::kSum:
    case OperatorKind::kDispatch:
      break;
  }
  return false;
}

}  // namespace weft
