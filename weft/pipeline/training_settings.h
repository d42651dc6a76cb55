#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <c10/core/Device.h>

#include "weft/layers/loss_settings.h"
#include "weft/optim/adamw.h"
#include "weft/optim/weight_rules.h"
#include "weft/pipeline/pace.h"

namespace weft {

/// What a training run adds to a plan.
struct TrainingSettings {
  AdamWSettings adamw;
  std::vector<WeightRule> weight_rules = {};  ///< of weights that are updated otherwise than `adamw` says
  double peak_learning_rate = 0;              ///< that rates in these rules stand beside
  double max_gradient_norm = 0;               ///< 0: gradients are not clipped
  LossSettings loss = {};
  /// Of fresh weights. Without, weights are zero until a checkpoint or a folder is loaded into the optimizers.
  std::optional<uint64_t> seed = 0;
  at::Device device = at::kCPU;
  Pace pace;  ///< for measuring schedules
};

}  // namespace weft
