#include "weft/simulate/plan_report.h"

#include <algorithm>

#include "weft/base/units.h"

namespace weft {

const MemoryPart& largest_part(const MemorySplit& memory) {
  return *std::max_element(kMemoryParts.begin(), kMemoryParts.end(),
                           [&](const MemoryPart& a, const MemoryPart& b) { return memory.*a.value < memory.*b.value; });
}

const ScheduleRowReport& PlanReport::fullest() const {
  return *std::max_element(rows.begin(), rows.end(), [](const ScheduleRowReport& a, const ScheduleRowReport& b) {
    return a.memory.total() < b.memory.total();
  });
}

Prediction prediction_of(const PlanReport& report) {
  Prediction predicted{.step_time_ms = report.step_time_ms,
                       .bubble_fraction = report.bubble_fraction,
                       .throughput_samples_per_s = report.throughput_samples_per_s};
  for (const ScheduleRowReport& row : report.rows) predicted.peak_memory_gib.push_back(row.memory.total() / kGiB);
  return predicted;
}

}  // namespace weft
