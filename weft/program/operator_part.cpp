#include "weft/program/operator_part.h"

#include <charconv>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "weft/program/program_text.h"

namespace weft {
namespace {

using Role = ProgramValue::Role;

/// Among how many ranks each dim of the rule is cut.
std::vector<int64_t> num_parts(const Rule& rule, const std::vector<Choice>& choices, const AxisGrid& grid) {
  std::vector<int64_t> parts(rule.dims.size(), 1);
  for (size_t axis = 0; axis < choices.size(); ++axis) {
    if (choices[axis].kind == Choice::Kind::kCut) parts[choices[axis].index] *= grid.size(axis);
  }
  return parts;
}

/// The values of an operator with their terms, the result last.
template <typename Visit>
void each_tensor(const Operator& op, Visit visit) {
  for (size_t i = 0; i < op.operands.size(); ++i) visit(op.operands[i], op.rule.operands[i]);
  visit(op.result, op.rule.result);
}

/// A dim as the busiest rank has it.
ProgramDim part_of(const ProgramDim& dim, const std::vector<size_t>& rule_dims, const std::vector<int64_t>& parts) {
  int64_t count = 1;
  for (const size_t rule_dim : rule_dims) count *= parts[rule_dim];
  ProgramDim part = dim;
  part.length = dim.largest_part(count);
  return part;
}

}  // namespace

OperatorPart part_of(const Program& program, const Operator& op, const std::vector<Choice>& choices,
                     const AxisGrid& grid) {
  const std::vector<int64_t> parts = num_parts(op.rule, choices, grid);
  OperatorPart found;
  std::vector<std::string> roles;
  for (const size_t operand : op.operands) {
    const Role role = program.values[operand].role;
    roles.push_back(role == Role::kWeight ? "weight" : role == Role::kData ? "data" : "rows");
  }
  found.op = nameless_text(op, fmt::format("{}", fmt::join(roles, ", ")));
  each_tensor(op, [&](size_t value, const RuleTerm& term) {
    std::vector<int64_t> lengths;
    for (size_t place = 0; place < term.size(); ++place)
      lengths.push_back(part_of(program.dims[program.values[value].dims[place]], term[place], parts).length);
    if (!found.parts.empty()) found.parts += value == op.result ? " -> " : ", ";
    found.parts += lengths.empty() ? "1" : fmt::format("{}", fmt::join(lengths, "x"));
  });
  for (size_t dim = 0; dim < parts.size(); ++dim) {
    if (parts[dim] > 1 && op.rule.dims[dim].kind == DimKind::kInside)
      found.inside += fmt::format("{}{} {}", found.inside.empty() ? "" : ", ", op.rule.dims[dim].name, parts[dim]);
  }
  return found;
}

std::optional<std::vector<std::vector<int64_t>>> lengths_in(const std::string& parts) {
  std::vector<std::vector<int64_t>> tensors(1);
  const char *at = parts.data(), *const end = parts.data() + parts.size();
  bool has_result = false;
  while (true) {
    int64_t length = 0;
    const auto [behind, error] = std::from_chars(at, end, length);
    if (error != std::errc() || length < 0) return std::nullopt;
    tensors.back().push_back(length);
    const std::string_view rest(behind, static_cast<size_t>(end - behind));
    size_t skipped = 1;
    if (rest.empty()) {
      if (!has_result) return std::nullopt;
      return tensors;
    }
    if (rest.starts_with("x")) {
    } else if (rest.starts_with(", ") && !has_result) {
      skipped = 2;
      tensors.emplace_back();
    } else if (rest.starts_with(" -> ") && !has_result) {
      skipped = 4;
      has_result = true;
      tensors.emplace_back();
    } else {
      return std::nullopt;
    }
    at = behind + skipped;
  }
}

OperatorCase case_of(const Program& program, const Operator& op, Choice choice, int64_t ranks) {
  const AxisGrid grid = *AxisGrid::create({{"tp", ranks}});
  OperatorCase made{.choice = Choice::same(), .part = part_of(program, op, {choice}, grid)};
  std::vector<int64_t> parts(op.rule.dims.size(), 1);
  if (made.part.inside.empty()) {
    parts = num_parts(op.rule, {choice}, grid);
  } else {
    made.choice = choice;
    made.ranks = ranks;
  }
  Program& alone = made.program;
  alone.name = op.name;
  Operator own = op;
  own.operands.clear();
  own.is_fused = false;
  // Every tensor has dims of its own: what one name stands for may be cut in one of them alone.
  each_tensor(op, [&](size_t value, const RuleTerm& term) {
    ProgramValue copy = program.values[value];
    const bool is_result = value == op.result;
    copy.name = is_result ? op.name : fmt::format("x{}", alone.values.size());
    if (!is_result && copy.role == Role::kResult) copy.role = Role::kInput;
    for (size_t place = 0; place < term.size(); ++place) {
      ProgramDim dim = part_of(program.dims[copy.dims[place]], term[place], parts);
      dim.name = fmt::format("d{}", alone.dims.size());
      copy.dims[place] = alone.dims.size();
      alone.dims.push_back(std::move(dim));
    }
    if (is_result) {
      own.result = alone.values.size();
    } else {
      own.operands.push_back(alone.values.size());
    }
    alone.values.push_back(std::move(copy));
  });
  alone.operators.push_back(std::move(own));
  return made;
}

}  // namespace weft
