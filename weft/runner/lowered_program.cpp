#include "weft/runner/lowered_program.h"

#include <set>

namespace weft {
namespace {

std::vector<LoweredGroup> lowered_groups(const ProgramFlow& flow, const FlowSegment& segment) {
  std::vector<LoweredGroup> lowered;
  for (const MemberGroup& group : groups_of(flow, segment)) lowered.push_back({group, {}, {}});
  std::set<size_t> read_leaves, read_values;
  for (size_t i = lowered.size(); i-- > 0;) {
    LoweredGroup& group = lowered[i];
    for (size_t member = group.first; member <= group.last(); ++member) {
      for (const FlowSegment::Read& read : segment.members[member].reads) {
        if (read.is_leaf && read_leaves.insert(read.index).second) group.freed_leaves.push_back(read.index);
        if (!read.is_leaf && read_values.insert(read.index).second) group.freed_values.push_back(read.index);
      }
      // What nobody reads here is an end.
      const size_t made = flow.program->operators[segment.members[member].op].result;
      if (read_values.insert(made).second) group.freed_values.push_back(made);
    }
  }
  return lowered;
}

}  // namespace

Result<LoweredProgram> lower(const Program& program, const RunStrategy& strategy, const MeshGroups& groups,
                             const std::vector<bool>& wants_gradient, bool reduces_first,
                             const CustomOperators& custom) {
  LoweredProgram lowered;
  WEFT_TRY(static_cast<ProgramFlow&>(lowered),
           flow_of(program, strategy, groups.mesh().grid(), wants_gradient, reduces_first));
  for (size_t op = 0; op < program.operators.size(); ++op) {
    WEFT_TRY(LocalOperator local, LocalOperator::create(lowered, op, groups, custom));
    lowered.operators.push_back(std::move(local));
  }
  for (const FlowSegment& segment : lowered.segments) lowered.groups.push_back(lowered_groups(lowered, segment));
  return lowered;
}

}  // namespace weft
