#pragma once

#include <memory>
#include <vector>

#include "weft/runner/shape_plan.h"

namespace weft {

/// What one forward of a ProgramRunner keeps for its backward. The caller holds it, so that several forwards may wait
/// for their backwards; the runner must outlive it.
class RunnerTape {
 public:
  /// Whether there is a forward that was not gone back through, and weights that wait for their gradients.
  bool awaits_inputs() const { return plan_ != nullptr && !went_back_; }
  bool awaits_weights() const { return plan_ != nullptr; }

 private:
  friend class ProgramRunner;

  std::shared_ptr<const ShapePlan> plan_;
  std::vector<LocalGraph> graphs_;  ///< by segment
  bool went_back_ = false;
};

}  // namespace weft
