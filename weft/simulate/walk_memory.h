#pragma once

#include <vector>

#include "weft/schedule/schedule.h"

namespace weft {

/// What one stage holds on its rank, in bytes.
struct StageMemory {
  double static_bytes = 0;                   ///< weights, gradients, optimizer states: all the time
  double activation_bytes = 0;               ///< one microbatch's, from F to B, or to W where the backward is split
  double freed_by_input_gradient_bytes = 0;  ///< the part of it that I frees already
  double workspace_bytes = 0;                ///< on top while an action of the stage runs
};

/// The most bytes that each rank holds at once, walking its row: what an action allocates is there from its start, what
/// it frees until its end. Order alone decides, so no times are needed.
std::vector<double> peak_memory_bytes(const Schedule& schedule, const std::vector<StageMemory>& stages);

}  // namespace weft
