#pragma once

#include <vector>

#include "weft/program/program_flow.h"
#include "weft/runner/local_operator.h"

namespace weft {

/// A flow as one rank computes it.
struct LoweredProgram : ProgramFlow {
  std::vector<LocalOperator> operators;
};

/// As flow_of; also fails for operators that cannot run.
Result<LoweredProgram> lower(const Program& program, const RunStrategy& strategy, const MeshGroups& groups,
                             const std::vector<bool>& wants_gradient, bool reduces_first,
                             const CustomOperators& custom);

}  // namespace weft
