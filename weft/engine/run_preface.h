#pragma once

#include <string>
#include <vector>

#include "weft/comm/launch.h"
#include "weft/engine/core_share.h"
#include "weft/engine/train_config.h"
#include "weft/plan/plan.h"

namespace weft {

/// What a run tells before its first step, since making ranks and weights can take long: the model, the ranks with what
/// their cores cost, and the weights, a line each.
struct RunPreface {
  const Plan& plan;
  const TrainConfig& config;
  Launch launch;
  CoreShare share;

  std::vector<std::string> lines(const std::string& checkpoint) const;
};

}  // namespace weft
