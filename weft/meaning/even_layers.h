#pragma once

#include <cstdint>
#include <vector>

#include "weft/schedule/schedule.h"

namespace weft {

/// By pipeline rank and chunk: layers spread over all stages as evenly as they go, more on earlier ones.
inline std::vector<std::vector<int64_t>> even_layers(int64_t layers, Placement placement, int64_t pp, int64_t vpp) {
  std::vector<std::vector<int64_t>> rows(static_cast<size_t>(pp), std::vector<int64_t>(static_cast<size_t>(vpp)));
  const int64_t stages = pp * vpp;
  for (int64_t stage = 0; stage < stages; ++stage) {
    const StagePlace place = place_of_stage(placement, static_cast<int32_t>(pp), static_cast<int32_t>(stage));
    rows[static_cast<size_t>(place.rank)][static_cast<size_t>(place.chunk)] =
        layers / stages + (stage < layers % stages ? 1 : 0);
  }
  return rows;
}

}  // namespace weft
