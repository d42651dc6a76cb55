#include "weft/engine/step_timeline.h"

#include <algorithm>

namespace weft {
namespace {

constexpr size_t kNumbersPerEvent = 7;

}  // namespace

Timeline gather_timeline(Group& group, const std::vector<TimelineEvent>& events, double zero_ms) {
  std::vector<double> own;
  for (const TimelineEvent& event : events) {
    own.insert(own.end(), {static_cast<double>(event.action.kind), static_cast<double>(event.action.stage),
                           static_cast<double>(event.action.microbatch), static_cast<double>(event.stream),
                           event.start_ms - zero_ms, event.end_ms - zero_ms, event.blocked_ms});
  }
  const auto count = static_cast<int64_t>(own.size());
  std::vector<int64_t> counts(static_cast<size_t>(group.size()));
  group
      .all_gather(ConstBuffer(&count, 1, DataType::kInt64),
                  Buffer{.data = counts.data(), .count = group.size(), .type = DataType::kInt64})
      .wait();
  int64_t total = 0;
  for (const int64_t n : counts) total += n;
  std::vector<double> all(static_cast<size_t>(total));
  group
      .all_gather(ConstBuffer(own.data(), count, DataType::kFp64),
                  Buffer{.data = all.data(), .count = total, .type = DataType::kFp64}, counts)
      .wait();
  Timeline timeline;
  if (group.rank() != 0) return timeline;
  const double* next = all.data();
  for (const int64_t n : counts) {
    auto& rank = timeline.ranks.emplace_back();
    for (int64_t i = 0; i < n; i += kNumbersPerEvent, next += kNumbersPerEvent) {
      rank.push_back({.action = {.kind = static_cast<ActionKind>(next[0]),
                                 .stage = static_cast<int32_t>(next[1]),
                                 .microbatch = static_cast<int32_t>(next[2])},
                      .stream = static_cast<Stream>(next[3]),
                      .start_ms = next[4],
                      .end_ms = next[5],
                      .blocked_ms = next[6]});
      timeline.makespan_ms = std::max(timeline.makespan_ms, next[5]);
    }
  }
  return timeline;
}

}  // namespace weft
