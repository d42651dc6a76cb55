#include "weft/simulate/plan_report.h"

#include <algorithm>

namespace weft {

const MemoryPart& largest_part(const MemorySplit& memory) {
  return *std::max_element(kMemoryParts.begin(), kMemoryParts.end(),
                           [&](const MemoryPart& a, const MemoryPart& b) { return memory.*a.value < memory.*b.value; });
}

const RowReport& PlanReport::fullest() const {
  return *std::max_element(rows.begin(), rows.end(),
                           [](const RowReport& a, const RowReport& b) { return a.memory.total() < b.memory.total(); });
}

}  // namespace weft
