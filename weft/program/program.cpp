#include "weft/program/program.h"

#include <algorithm>

#include <fmt/format.h>

#include "weft/base/text.h"
#include "weft/program/program_uses.h"

namespace weft {
namespace {

bool same_attention(const Attention& a, const Attention& b) {
  return a.heads == b.heads && a.kv_heads == b.kv_heads && a.head_dim == b.head_dim && a.mask == b.mask &&
         a.window == b.window && a.dropout == b.dropout;
}

template <typename List>
std::optional<size_t> find_name(const List& list, std::string_view name) {
  const auto found = std::find_if(list.begin(), list.end(), [&](const auto& entry) { return entry.name == name; });
  if (found == list.end()) return std::nullopt;
  return static_cast<size_t>(found - list.begin());
}

/// Looks at one operator after the other.
class ProgramChecker {
 public:
  explicit ProgramChecker(const Program& program) : program_(program), uses_(program) {}

  std::optional<Error> run() {
    for (size_t i = 0; i < program_.operators.size(); ++i) {
      if (auto wrong = check_terms(program_.operators[i])) return wrong;
      if (auto wrong = check_reads(i)) return wrong;
    }
    for (const Repeat& repeat : program_.repeats) {
      if (auto wrong = check_repeat(repeat)) return wrong;
    }
    return std::nullopt;
  }

 private:
  static Error wrong(const Operator& op, std::string problem, std::string advice) {
    return {.field = op.name, .problem = std::move(problem), .advice = std::move(advice)};
  }

  /// The tensors have the dims that the rule says, and each dim of the rule has one number of units.
  std::optional<Error> check_terms(const Operator& op) const {
    std::vector<std::optional<size_t>> first(op.rule.dims.size());  // a dim of the program with as many units
    for (size_t i = 0; i <= op.operands.size(); ++i) {
      const bool is_result = i == op.operands.size();
      const ProgramValue& value = program_.values[is_result ? op.result : op.operands[i]];
      const RuleTerm& term = is_result ? op.rule.result : op.rule.operands[i];
      if (term.size() != value.dims.size())
        return wrong(op,
                     fmt::format("{} has {} dims, but the rule {} gives it {}", in_quotes(value.name),
                                 value.dims.size(), in_quotes(op.rule.text()), term.size()),
                     "Correct the rule or the tensor.");
      for (size_t place = 0; place < term.size(); ++place) {
        if (term[place].size() != 1) continue;
        std::optional<size_t>& known = first[term[place][0]];
        const ProgramDim& dim = program_.dims[value.dims[place]];
        if (!known) known = value.dims[place];
        const ProgramDim& other = program_.dims[*known];
        if (dim.num_units() != other.num_units())
          return wrong(
              op,
              fmt::format("the dim {} of the rule {} has {} units in {} (dim {}), but {} elsewhere (dim {})",
                          in_quotes(op.rule.dims[term[place][0]].name), in_quotes(op.rule.text()), dim.num_units(),
                          in_quotes(value.name), in_quotes(dim.name), other.num_units(), in_quotes(other.name)),
              "Give both the same length, or units.");
      }
    }
    return std::nullopt;
  }

  /// What is read is made before, in the same repeat or outside of all.
  std::optional<Error> check_reads(size_t index) const {
    const Operator& op = program_.operators[index];
    for (const size_t operand : op.operands) {
      const ProgramValue& value = program_.values[operand];
      const auto here = uses_.repeat_of(index);
      if (value.role == ProgramValue::Role::kResult) {
        const size_t made = *uses_.maker_of(operand);
        if (made >= index)
          return wrong(op, fmt::format("reads {}, which is made later: a cycle", in_quotes(value.name)),
                       "An operator reads what stands before it.");
        const auto there = uses_.repeat_of(made);
        if (there && there != here && program_.repeats[*there].carried_out != operand)
          return wrong(op, fmt::format("reads {} from inside of a repeat", in_quotes(value.name)),
                       "Only the value that a repeat ends with is there after it.");
        if (!there && here && program_.repeats[*here].carried_in != operand)
          return wrong(op, fmt::format("reads {} from outside of its repeat", in_quotes(value.name)),
                       "A repeat reads its carried value, data and weights of its own.");
        if (there && here && there != here && program_.repeats[*here].carried_in != operand)
          return wrong(op, fmt::format("reads {} from another repeat", in_quotes(value.name)),
                       "Carry it into this one.");
      } else if (here && value.role == ProgramValue::Role::kInput && program_.repeats[*here].carried_in != operand) {
        return wrong(op, fmt::format("reads the input {} inside of a repeat", in_quotes(value.name)),
                     "Carry it in, or declare it as data.");
      }
      // The first reader is compared with all others, so that these need not be.
      const std::vector<size_t>& readers = uses_.readers_of(operand);
      if (value.role == ProgramValue::Role::kWeight && readers.front() == index) {
        if (std::any_of(readers.begin(), readers.end(), [&](size_t reader) { return uses_.repeat_of(reader) != here; }))
          return wrong(
              op,
              fmt::format("reads the weight {}, which an operator in another repeat reads too", in_quotes(value.name)),
              "Every time of a repeat has weights of its own.");
      }
    }
    return std::nullopt;
  }

  std::optional<Error> check_repeat(const Repeat& repeat) const {
    const ProgramValue& in = program_.values[repeat.carried_in];
    const ProgramValue& out = program_.values[repeat.carried_out];
    const Operator& last = program_.operators[repeat.end - 1];
    if (in.dims != out.dims)
      return wrong(last,
                   fmt::format("the repeat begins with {} and ends with {}, which has other dims", in_quotes(in.name),
                               in_quotes(out.name)),
                   "Both must have the same dims.");
    for (const size_t reader : uses_.readers_of(repeat.carried_in)) {
      if (reader < repeat.begin || reader >= repeat.end)
        return wrong(program_.operators[reader],
                     fmt::format("reads {}, which a repeat carries, outside of it", in_quotes(in.name)),
                     "Read the value that the repeat ends with.");
    }
    for (const size_t reader : uses_.readers_of(repeat.carried_out)) {
      if (reader >= repeat.begin && reader < repeat.end)
        return wrong(program_.operators[reader],
                     fmt::format("reads {}, with which its repeat ends, inside of it", in_quotes(out.name)),
                     "End the repeat with a value of its own.");
    }
    return std::nullopt;
  }

  const Program& program_;
  ProgramUses uses_;
};

}  // namespace

std::string_view name_of(OperatorKind kind) {
  switch (kind) {
    case OperatorKind::kEinsum:
      return "einsum";
    case OperatorKind::kAdd:
      return "add";
    case OperatorKind::kMultiply:
      return "multiply";
    case OperatorKind::kElementwise:
      return "elementwise";
    case OperatorKind::kScale:
      return "scale";
    case OperatorKind::kDropout:
      return "dropout";
    case OperatorKind::kReshape:
      return "reshape";
    case OperatorKind::kSum:
      return "sum";
    case OperatorKind::kNorm:
      return "norm";
    case OperatorKind::kSoftmax:
      return "softmax";
    case OperatorKind::kAttention:
      return "attention";
    case OperatorKind::kLookup:
      return "lookup";
    case OperatorKind::kCrossEntropy:
      return "cross_entropy";
    case OperatorKind::kDispatch:
      return "dispatch";
    case OperatorKind::kCombine:
      return "combine";
    case OperatorKind::kCustom:
      return "custom";
  }
  return "";
}

bool Operator::operator==(const Operator& other) const {
  return name == other.name && kind == other.kind && rule == other.rule && operands == other.operands &&
         result == other.result && same_attention(attention, other.attention) && calculation == other.calculation &&
         is_fused == other.is_fused;
}

std::optional<size_t> Program::find_dim(std::string_view dim) const {
  return find_name(dims, dim);
}
std::optional<size_t> Program::find_value(std::string_view value) const {
  return find_name(values, value);
}
std::optional<size_t> Program::find_operator(std::string_view op) const {
  return find_name(operators, op);
}

std::optional<size_t> Program::repeat_of(size_t op) const {
  for (size_t i = 0; i < repeats.size(); ++i) {
    if (op >= repeats[i].begin && op < repeats[i].end) return i;
  }
  return std::nullopt;
}

std::vector<size_t> Program::readers_of(size_t value) const {
  std::vector<size_t> readers;
  for (size_t i = 0; i < operators.size(); ++i) {
    const std::vector<size_t>& operands = operators[i].operands;
    if (std::find(operands.begin(), operands.end(), value) != operands.end()) readers.push_back(i);
  }
  return readers;
}

int64_t Program::num_elements(size_t value) const {
  int64_t product = 1;
  for (const size_t dim : values[value].dims) product *= dims[dim].length;
  return product;
}

std::optional<Error> find_wrong(const Program& program) {
  return ProgramChecker(program).run();
}

}  // namespace weft
