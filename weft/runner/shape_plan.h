#pragma once

#include <memory>
#include <vector>

#include "weft/runner/local_operator.h"

namespace weft {

/// The way of one value to one layout that operators read it in, and of its gradient back, for given lengths.
struct EdgeSteps {
  RankSteps forward;
  RankSteps adjoint;
  Traffic forward_traffic;  ///< in elements
  Traffic adjoint_traffic;
};

/// All that depends on the lengths of a run.
struct ShapePlan {
  std::vector<std::shared_ptr<const EdgeSteps>> arrivals;    ///< by arrival (lowered_program.h)
  std::vector<std::shared_ptr<const OperatorPlace>> places;  ///< by operator
};

}  // namespace weft
