#include "weft/shard/run_strategy_of.h"

#include <algorithm>

#include "weft/program/value_layout.h"

namespace weft {

RunStrategy run_strategy_of(const ShardProblem& problem, const ShardAssignment& assignment,
                            const DividedProgram& unrolled) {
  const Program& program = unrolled.program;
  const ProgramUses uses(program);
  RunStrategy strategy;
  for (const auto& [op, time] : unrolled.origins)
    strategy.operators.push_back(problem.options(op)[assignment.options[op][time]].choices);
  strategy.sources.resize(program.values.size());
  for (size_t value = 0; value < program.values.size(); ++value) {
    if (program.values[value].role == ProgramValue::Role::kResult) continue;
    std::vector<AxisState>& states = strategy.sources[value];
    const std::vector<size_t>& readers = uses.readers_of(value);
    if (readers.empty()) {
      states.assign(problem.setting().links.grid().num_axes(), AxisState::replicated());
      continue;
    }
    const Operator& reader = program.operators[readers.front()];
    const auto operand =
        static_cast<size_t>(std::find(reader.operands.begin(), reader.operands.end(), value) - reader.operands.begin());
    const auto [op, time] = unrolled.origins[readers.front()];
    const size_t from = problem.program().operators[op].operands[operand];
    if (problem.is_source(from)) {
      const std::vector<size_t>& codes = assignment.sources[from];
      states = problem.transitions(from).codes().states(codes[std::min(time, codes.size() - 1)]);
      continue;
    }
    // What one operator reads lies as that one asks for it.
    states = operand_states(program, reader, strategy.operators[readers.front()], operand);
    for (AxisState& state : states) {
      if (!state.is_shard()) state = AxisState::replicated();
    }
  }
  return strategy;
}

}  // namespace weft
