#include "tests/support/pipeline/plan_ranks.h"

namespace weft {

PlanRanks plan_ranks() {
  return thread_ranks();
}

}  // namespace weft
