#include <chrono>

#include "weft/base/check.h"
#include "weft/comm/run_ranks.h"
#include "weft/pipeline/plan_ranks.h"

namespace weft {

PlanRanks plan_ranks() {
  return {.run = [](int64_t size, const std::function<void(World&)>& body) {
    const auto error =
        run_ranks({.size = size, .comm = {.timeout = std::chrono::seconds(60), .is_checked = true}}, body);
    WEFT_CHECK(!error, "{}", error->message());
    return true;
  }};
}

}  // namespace weft
