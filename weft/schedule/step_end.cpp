#include "weft/schedule/step_end.h"

namespace weft {

Schedule with_step_end(Schedule schedule) {
  std::vector<int32_t> num_gradients(static_cast<size_t>(schedule.num_stages()), 0);
  for (auto& row : schedule.rows) {
    std::vector<Action> extended, updates;
    extended.reserve(row.size() + 2);
    for (const Action& action : row) {
      extended.push_back(action);
      if (action.kind != ActionKind::kBackward && action.kind != ActionKind::kBackwardWeight) continue;
      if (++num_gradients[static_cast<size_t>(action.stage)] == schedule.num_microbatches) {
        extended.push_back({ActionKind::kReduceGrad, action.stage, -1});
        updates.push_back({ActionKind::kUpdate, action.stage, -1});
      }
    }
    extended.insert(extended.end(), updates.begin(), updates.end());
    row = std::move(extended);
  }
  return schedule;
}

}  // namespace weft
