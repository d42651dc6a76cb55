#pragma once

#include "weft/search/plan_search.h"

namespace weft {

/// How verbs search where nobody says otherwise.
inline PlanSearchOptions default_search(double time_limit_s) {
  return {
      .time_limit_s = time_limit_s, .within = 0.02, .memory_margin = 0.08, .batches = kEnoughBatches, .improves = true};
}

}  // namespace weft
