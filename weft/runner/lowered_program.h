#pragma once

#include <vector>

#include "weft/program/member_groups.h"
#include "weft/program/program_flow.h"
#include "weft/runner/local_operator.h"

namespace weft {

/// Members of a segment that are computed together, and what nothing behind them in it reads.
struct LoweredGroup : MemberGroup {
  std::vector<size_t> freed_leaves;  ///< of the segment's leaves
  std::vector<size_t> freed_values;  ///< that were made in the segment
};

/// A flow as one rank computes it.
struct LoweredProgram : ProgramFlow {
  std::vector<LocalOperator> operators;
  std::vector<std::vector<LoweredGroup>> groups;  ///< by segment
};

/// As flow_of; also fails for operators that cannot run.
Result<LoweredProgram> lower(const Program& program, const RunStrategy& strategy, const MeshGroups& groups,
                             const std::vector<bool>& wants_gradient, bool reduces_first,
                             const CustomOperators& custom);

}  // namespace weft
