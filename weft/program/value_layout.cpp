#include "weft/program/value_layout.h"

namespace weft {

Result<Layout> value_layout(const Program& program, const AxisGrid& grid, size_t value,
                            const std::vector<AxisState>& states) {
  return value_layout(program, declared_lengths(program), grid, value, states);
}

Result<Layout> value_layout(const Program& program, const RunLengths& lengths, const AxisGrid& grid, size_t value,
                            const std::vector<AxisState>& states) {
  const std::vector<size_t>& dims = program.values[value].dims;
  std::vector<int64_t> shape;
  shape.reserve(dims.size());
  for (const size_t dim : dims) shape.push_back(lengths[dim].length);
  std::vector<PartSizes> sizes;
  for (size_t place = 0; place < shape.size(); ++place) {
    const DimLength& dim = lengths[dims[place]];
    if (dim.unit == 1) continue;
    std::vector<int64_t> counts;  // the outermost axis first
    for (size_t axis = states.size(); axis-- > 0;) {
      if (states[axis] == AxisState::shard(place)) counts.push_back(grid.size(axis));
    }
    if (counts.empty()) continue;
    std::vector<int64_t> parts = Split(dim.num_units(), counts).sizes();
    for (int64_t& part : parts) part *= dim.unit;
    sizes.push_back({place, std::move(parts)});
  }
  return Layout::create(grid, std::move(shape), states, sizes);
}

std::vector<AxisState> operand_states(const Program& program, const Operator& op, const std::vector<Choice>& choices,
                                      size_t operand) {
  std::vector<AxisState> states;
  for (const Choice choice : choices) {
    AxisState state = states_of(op.rule, choice).operands[operand];
    if (!program.has_gradient(op.operands[operand]) && state.is_replicated()) state = AxisState::replicated();
    states.push_back(state);
  }
  return states;
}

std::vector<AxisState> result_states(const Operator& op, const std::vector<Choice>& choices) {
  std::vector<AxisState> states;
  for (const Choice choice : choices) states.push_back(states_of(op.rule, choice).result);
  return states;
}

}  // namespace weft
