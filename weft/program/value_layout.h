#pragma once

#include "weft/program/program.h"
#include "weft/program/run_lengths.h"

namespace weft {

/// Where a value of a program is on a mesh, given its state on every axis: dims are cut between units, as evenly as
/// these allow. Fails where two axes contradict each other.
Result<Layout> value_layout(const Program& program, const AxisGrid& grid, size_t value,
                            const std::vector<AxisState>& states);
/// The same with the lengths of one run.
Result<Layout> value_layout(const Program& program, const RunLengths& lengths, const AxisGrid& grid, size_t value,
                            const std::vector<AxisState>& states);

/// The states that an operator's choices, one for each axis, ask of an operand. What has no gradient has no partial
/// one.
std::vector<AxisState> operand_states(const Program& program, const Operator& op, const std::vector<Choice>& choices,
                                      size_t operand);
std::vector<AxisState> result_states(const Operator& op, const std::vector<Choice>& choices);

}  // namespace weft
