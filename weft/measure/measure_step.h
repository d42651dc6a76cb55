#pragma once

#include "weft/measure/measure_block.h"

namespace weft {

/// What training does besides its blocks and updates.
struct StepOverhead {
  double action_ms = 0;  ///< around a forward or a backward
  double step_ms = 0;    ///< of a step
};

/// Of a model of one layer that trains, less what its blocks and its update take by themselves, for microbatches of so
/// many tokens, with as many threads as a rank has where `ranks` share the cores. Nothing where it was stopped.
Result<std::optional<StepOverhead>> measure_step(const Model& model, int64_t tokens, int64_t ranks,
                                                 const MeasureSettings& settings);

}  // namespace weft
