#include "weft/mesh/step.h"

#include <algorithm>

#include <fmt/format.h>

#include "weft/base/text.h"

namespace weft {
bool is_collective(StepKind kind) {
  return kind >= StepKind::kAllGather;
}

std::string_view step_name(StepKind kind) {
  switch (kind) {
    case StepKind::kIdentity:
      return "identity";
    case StepKind::kSlice:
      return "slice";
    case StepKind::kZeroPad:
      return "zero-pad";
    case StepKind::kAllGather:
      return "all-gather";
    case StepKind::kReduceScatter:
      return "reduce-scatter";
    case StepKind::kAllReduce:
      return "all-reduce";
    case StepKind::kAllToAll:
      break;
  }
  return "all-to-all";
}

std::string Step::text() const {
  std::string text(step_name(kind));
  const bool pads_shards = kind == StepKind::kZeroPad && before.state(axes.front()).is_shard();
  if (kind == StepKind::kAllToAll) {
    text += fmt::format(" from dim {} to {}", dim, to_dim);
  } else if (pads_shards || kind == StepKind::kSlice || kind == StepKind::kAllGather ||
             kind == StepKind::kReduceScatter) {
    text += fmt::format(" of dim {}", dim);
  }
  for (size_t i = 0; i < axes.size(); ++i)
    text += (i == 0 ? " over " : "+") + printable(before.grid().axes()[axes[i]].name);
  return text;
}

bool keeps_copy(const Step& step, int64_t position) {
  for (const size_t axis : step.axes) {
    if (step.before.state(axis).is_replicated() && step.before.grid().coordinate(position, axis) != 0) return false;
  }
  return true;
}

Traffic traffic_of(const Step& step, int64_t position) {
  if (!is_collective(step.kind)) return {};
  const AxisGrid& grid = step.before.grid();
  const int64_t num_ranks = grid.group_size(step.axes);
  const int64_t index = grid.group_index(position, step.axes);
  const int64_t next = grid.group_member(position, step.axes, (index + 1) % num_ranks);
  const int64_t previous = grid.group_member(position, step.axes, (index + num_ranks - 1) % num_ranks);
  const int64_t before = step.before.num_local_elements(position);
  const int64_t after = step.after.num_local_elements(position);
  switch (step.kind) {
    case StepKind::kAllGather:
      return gather_traffic(after, before, step.before.num_local_elements(next));
    case StepKind::kReduceScatter:
      return scatter_traffic(before, after, step.after.num_local_elements(previous));
    case StepKind::kAllReduce:
      return all_reduce_traffic(before, num_ranks, index);
    default:
      break;
  }
  const int64_t kept = num_elements(intersection(step.before.box(position), step.after.box(position)));
  return {.sent = before - kept, .received = after - kept};
}

Traffic traffic_of(std::span<const Step> steps, int64_t position) {
  Traffic traffic;
  for (const Step& step : steps) traffic += traffic_of(step, position);
  return traffic;
}

int64_t busiest_received(std::span<const Step> steps) {
  int64_t sum = 0;
  for (const Step& step : steps) sum += step.busiest_received;
  return sum;
}

int64_t all_reduce_received(int64_t num_elements, int64_t num_ranks) {
  // The last two ranks of a ring have the smallest chunks, or else the last and the first.
  return std::max(all_reduce_traffic(num_elements, num_ranks, num_ranks - 1).received,
                  all_reduce_traffic(num_elements, num_ranks, 0).received);
}

std::string text(std::span<const Step> steps) {
  std::string text;
  for (const Step& step : steps) text += (text.empty() ? "" : ", ") + step.text();
  return text.empty() ? "nothing" : text;
}

}  // namespace weft
