#include "weft/simulate/walk_memory.h"

#include <algorithm>

#include "weft/base/check.h"

namespace weft {

std::vector<double> peak_memory_bytes(const Schedule& schedule, const std::vector<StageMemory>& stages) {
  WEFT_CHECK(stages.size() == static_cast<size_t>(schedule.num_stages()), "{} stages, but memory for {}",
             schedule.num_stages(), stages.size());
  std::vector<double> held(schedule.rows.size(), 0.0);
  for (size_t stage = 0; stage < stages.size(); ++stage) {
    held[static_cast<size_t>(schedule.rank_of_stage[stage])] += stages[stage].static_bytes;
  }
  std::vector<double> peaks = held;
  for (size_t rank = 0; rank < schedule.rows.size(); ++rank) {
    for (const Action& action : schedule.rows[rank]) {
      if (!is_pipeline_compute(action.kind)) continue;
      const StageMemory& stage = stages[static_cast<size_t>(action.stage)];
      if (action.kind == ActionKind::kForward) held[rank] += stage.activation_bytes;
      peaks[rank] = std::max(peaks[rank], held[rank] + stage.workspace_bytes);
      if (action.kind == ActionKind::kBackward) held[rank] -= stage.activation_bytes;
      if (action.kind == ActionKind::kBackwardInput) held[rank] -= stage.freed_by_input_gradient_bytes;
      if (action.kind == ActionKind::kBackwardWeight)
        held[rank] -= stage.activation_bytes - stage.freed_by_input_gradient_bytes;
    }
  }
  return peaks;
}

}  // namespace weft
