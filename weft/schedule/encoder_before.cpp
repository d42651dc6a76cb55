#include "weft/schedule/encoder_before.h"

namespace weft {

std::vector<Action> all_macro_batches(ActionKind kind, int32_t encoder, int32_t num_macro_batches) {
  std::vector<Action> actions;
  for (int32_t k = 0; k < num_macro_batches; ++k) actions.push_back({kind, encoder, k});
  return actions;
}

void add_before(Schedule& schedule, std::span<const int32_t> encoders) {
  std::vector<std::vector<Action>> in_front(schedule.rows.size());
  for (const int32_t index : encoders) {
    const ScheduledEncoder& encoder = schedule.encoders[static_cast<size_t>(index)];
    const auto forwards = all_macro_batches(ActionKind::kEncodeForward, index, encoder.num_macro_batches);
    const auto backwards = all_macro_batches(ActionKind::kEncodeBackward, index, encoder.num_macro_batches);
    for (const auto& group : encoder.groups) {
      for (const int32_t rank : group) {
        auto& front = in_front[static_cast<size_t>(rank)];
        auto& row = schedule.rows[static_cast<size_t>(rank)];
        front.insert(front.end(), forwards.begin(), forwards.end());
        if (encoder.is_trained) row.insert(row.end(), backwards.begin(), backwards.end());
      }
    }
  }
  for (size_t rank = 0; rank < schedule.rows.size(); ++rank) {
    schedule.rows[rank].insert(schedule.rows[rank].begin(), in_front[rank].begin(), in_front[rank].end());
  }
}

}  // namespace weft
