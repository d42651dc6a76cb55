#pragma once

#include <memory>
#include <vector>

#include "weft/optim/stage_optimizer.h"
#include "weft/parallelize/stage.h"
#include "weft/pipeline/stage_weights.h"

namespace weft {

/// A stage on a rank that trains it: its blocks, and what keeps their weights.
struct TrainedStage {
  TensorShare share;  ///< of its module
  std::unique_ptr<StageModel> model;
  std::unique_ptr<StageOptimizer> optimizer;
  std::unique_ptr<StageOptimizer> experts;  ///< of experts that other ranks have others of; null where there are none
  std::unique_ptr<StageWeights> weights;

  /// Of `optimizer` and `experts`, those that are there.
  std::vector<StageOptimizer*> optimizers() const;
  /// The most that its optimizers held since the last step began, added up.
  HeldElements peak_elements() const;
};

}  // namespace weft
