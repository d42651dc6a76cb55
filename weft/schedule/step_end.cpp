#include "weft/schedule/step_end.h"

#include <algorithm>

namespace weft {
namespace {

/// The encoders that a row has.
std::vector<int32_t> encoders_of_row(const Schedule& schedule, int32_t row) {
  std::vector<int32_t> encoders;
  for (size_t e = 0; e < schedule.encoders.size(); ++e) {
    const auto& groups = schedule.encoders[e].groups;
    const bool is_here = std::any_of(groups.begin(), groups.end(), [&](const std::vector<int32_t>& group) {
      return std::find(group.begin(), group.end(), row) != group.end();
    });
    if (is_here) encoders.push_back(static_cast<int32_t>(e));
  }
  return encoders;
}

}  // namespace

Schedule with_step_end(Schedule schedule) {
  std::vector<int32_t> num_gradients(static_cast<size_t>(schedule.num_stages()), 0);
  for (int32_t rank = 0; rank < schedule.num_ranks(); ++rank) {
    std::vector<Action>& row = schedule.rows[static_cast<size_t>(rank)];
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
    const std::vector<int32_t> encoders = encoders_of_row(schedule, rank);
    for (const int32_t encoder : encoders) extended.push_back({ActionKind::kEncodeReduce, encoder, -1});
    extended.insert(extended.end(), updates.begin(), updates.end());
    for (const int32_t encoder : encoders) extended.push_back({ActionKind::kEncodeUpdate, encoder, -1});
    row = std::move(extended);
  }
  return schedule;
}

}  // namespace weft
