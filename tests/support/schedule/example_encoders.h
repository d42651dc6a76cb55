#pragma once

#include <utility>
#include <vector>

#include "weft/schedule/encoder_forms.h"
#include "weft/schedule/generators.h"

// Pipelines and encoders beside them, for tests of schedules.
namespace weft {

inline Schedule pipeline(ScheduleName name, int64_t pp, int64_t vpp, int64_t m) {
  return *generate_schedule(name, {.pp = pp, .vpp = vpp, .microbatches = m});
}

inline StageDurations uniform(int32_t stages, double f, double i, double w) {
  const auto n = static_cast<size_t>(stages);
  return {std::vector<double>(n, f), std::vector<double>(n, i), std::vector<double>(n, w)};
}

/// Consecutive ranks from `first`, `size` to a group.
inline std::vector<std::vector<int32_t>> groups_of(int32_t first, int32_t num_ranks, int32_t size) {
  std::vector<std::vector<int32_t>> groups;
  for (int32_t rank = 0; rank < num_ranks; ++rank) {
    if (rank % size == 0) groups.emplace_back();
    groups.back().push_back(first + rank);
  }
  return groups;
}

inline ScheduledEncoder encoder_rows(const MacroShape& shape, std::vector<std::vector<int32_t>> groups) {
  const MacroRanges ranges = *macro_ranges(shape);
  return {.name = "vision",
          .num_macro_batches = ranges.num_macro_batches,
          .groups = std::move(groups),
          .first_macro = ranges.first_macro,
          .end_macro = ranges.end_macro};
}

inline EncoderPlacement placement(EncoderForm form, ScheduledEncoder rows, double forward_ms, double backward_ms) {
  const size_t groups = rows.groups.size();
  return {form, std::move(rows), std::vector<double>(groups, forward_ms), std::vector<double>(groups, backward_ms)};
}

}  // namespace weft
