#include "weft/shard/strategy_text.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "weft/meaning/strategy.h"
#include "weft/program/divide_repeats.h"

namespace weft {
namespace {

/// How many layers follow each other that do the same, for every repeat.
std::vector<std::vector<int64_t>> parts_of(const ShardProblem& problem, const ShardAssignment& assignment) {
  const Program& program = problem.program();
  std::vector<std::vector<int64_t>> parts;
  for (size_t index = 0; index < program.repeats.size(); ++index) {
    const Repeat& repeat = program.repeats[index];
    const auto are_alike = [&](size_t a, size_t b) {
      for (size_t op = repeat.begin; op < repeat.end; ++op) {
        if (assignment.options[op][a] != assignment.options[op][b]) return false;
        if (assignment.states[op][a] != assignment.states[op][b]) return false;
        // A weight of several operators has a layout of its own.
        for (const size_t operand : program.operators[op].operands) {
          const std::vector<size_t>& codes = assignment.sources[operand];
          if (codes.size() > std::max(a, b) && codes[a] != codes[b]) return false;
        }
      }
      return true;
    };
    std::vector<int64_t>& counts = parts.emplace_back(1, 1);
    for (int64_t layer = 1; layer < repeat.count; ++layer) {
      if (are_alike(static_cast<size_t>(layer - 1), static_cast<size_t>(layer))) {
        ++counts.back();
      } else {
        counts.push_back(1);
      }
    }
  }
  return parts;
}

std::string text_of_layers(const std::vector<std::vector<int64_t>>& parts) {
  std::string text;
  for (const std::vector<int64_t>& counts : parts)
    text += fmt::format("{}[{}]", text.empty() ? "" : ", ", fmt::join(counts, ", "));
  return fmt::format("layers: [{}]\n", text);
}

}  // namespace

Result<std::string> strategy_text(const ShardProblem& problem, const ShardAssignment& assignment) {
  const Program& program = problem.program();
  const AxisGrid& grid = problem.setting().links.grid();
  std::string text = "weft_strategy: 1\nmesh: {";
  for (size_t axis = 0; axis < grid.num_axes(); ++axis)
    text += fmt::format("{}{}: {}", axis > 0 ? ", " : "", grid.axes()[axis].name, grid.size(axis));
  text += "}\nmode: explicit\n";
  const std::vector<std::vector<int64_t>> parts = parts_of(problem, assignment);
  WEFT_TRY(const DividedProgram divided, divide_repeats(program, parts));
  std::string inputs, operators, zero;
  for (size_t value = 0; value < program.values.size(); ++value) {
    const bool is_weight = program.values[value].role == ProgramValue::Role::kWeight;
    if (!problem.is_source(value) || is_weight || assignment.sources[value].empty()) continue;
    const std::vector<AxisState> states = problem.transitions(value).codes().states(assignment.sources[value].front());
    inputs += fmt::format("  \"{}\": {{", program.values[value].name);
    for (size_t axis = 0; axis < states.size(); ++axis)
      inputs += fmt::format(
          "{}{}: {}", axis > 0 ? ", " : "", grid.axes()[axis].name,
          states[axis].is_shard() ? program.dims[program.values[value].dims[states[axis].dim]].name : "same");
    inputs += "}\n";
  }
  for (size_t part = 0; part < divided.origins.size(); ++part) {
    const auto [op, layer] = divided.origins[part];
    const Operator& written = divided.program.operators[part];
    const OperatorOption& option = problem.options(op)[assignment.options[op][layer]];
    operators += fmt::format("  \"{}\": {{", written.name);
    for (size_t axis = 0; axis < option.choices.size(); ++axis)
      operators += fmt::format("{}{}: {}", axis > 0 ? ", " : "", grid.axes()[axis].name,
                               text_of(written.rule, option.choices[axis]));
    operators += "}\n";
    const StateOption& held = option.states[assignment.states[op][layer]];
    size_t weight = 0;
    for (size_t i = 0; i < written.operands.size(); ++i) {
      const size_t operand = program.operators[op].operands[i];
      const bool is_held = program.values[operand].role == ProgramValue::Role::kWeight && !problem.is_source(operand);
      if (!is_held || weight >= held.weights.size()) continue;
      zero += fmt::format("  \"{}\": {{", divided.program.values[written.operands[i]].name);
      for (size_t axis = 0; axis < grid.num_axes(); ++axis)
        zero +=
            fmt::format("{}{}: {}", axis > 0 ? ", " : "", grid.axes()[axis].name, held.weights[weight].stages[axis]);
      zero += "}\n";
      ++weight;
    }
  }
  const bool has_parts = std::any_of(parts.begin(), parts.end(), [](const auto& counts) { return counts.size() > 1; });
  if (has_parts) text += text_of_layers(parts);
  if (!inputs.empty()) text += "inputs:\n" + inputs;
  text += "operators:\n" + operators;
  if (!zero.empty()) text += "zero:\n" + zero;
  text += "program:\n";
  for (const std::string& line : signature_of(divided.program)) text += fmt::format("  - \"{}\"\n", line);
  return text;
}

}  // namespace weft
