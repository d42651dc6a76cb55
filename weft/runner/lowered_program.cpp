#include "weft/runner/lowered_program.h"

namespace weft {

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
  return lowered;
}

}  // namespace weft
