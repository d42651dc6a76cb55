#pragma once

#include <optional>
#include <vector>

#include "weft/meaning/step_load.h"
#include "weft/mesh/own_route.h"
#include "weft/plan/plan.h"

namespace weft {

/// Where the rows of an encoder beside the pipeline go in one step, and their gradients, as far as one rank has to do
/// with it.
struct StepRoutes {
  std::vector<int64_t> ranks;               ///< the bridge's group, as the world numbers them
  std::vector<OwnRoute> rows;               ///< by macro batch
  std::vector<OwnRoute> gradients;          ///< the same; none where the encoder is frozen
  std::vector<std::vector<int64_t>> taken;  ///< by microbatch: the rows that it takes in here, by number
  /// How many numbers neighbours tell each other about what they take and make.
  struct Told {
    int64_t peer = 0;
    int64_t sent = 0;
    int64_t received = 0;
  };
  std::vector<Told> told;
};

/// Nothing where no rows come from the rank or go to it.
std::optional<StepRoutes> step_routes(const Plan& plan, const StepLoad& load, size_t encoder, int64_t rank);

}  // namespace weft
