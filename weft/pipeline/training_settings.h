#pragma once

#include <cstdint>
#include <optional>

#include <c10/core/Device.h>

#include "weft/optim/adamw.h"
#include "weft/pipeline/pace.h"

namespace weft {

/// What a training run adds to a plan.
struct TrainingSettings {
  AdamWSettings adamw;
  double max_gradient_norm = 0;  ///< 0: gradients are not clipped
  /// Of fresh weights. Without, weights are zero until a checkpoint or a folder is loaded into the optimizers.
  std::optional<uint64_t> seed = 0;
  at::Device device = at::kCPU;
  Pace pace;  ///< for measuring schedules
};

}  // namespace weft
