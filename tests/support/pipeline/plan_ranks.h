#pragma once

#include <chrono>
#include <cstdint>
#include <functional>

#include "weft/base/check.h"
#include "weft/comm/run_ranks.h"

namespace weft {

/// The ranks that a test program has: threads, or the processes that mpirun has started.
struct PlanRanks {
  bool are_processes = false;  ///< each of them knows only what its own rank did
  /// Runs the body on so many; false where there are others.
  std::function<bool(int64_t size, const std::function<void(World&)>& body)> run;
};

/// Threads of this program, as many as asked for, whose groups check what they are asked.
inline PlanRanks thread_ranks() {
  return {.run = [](int64_t size, const std::function<void(World&)>& body) {
    const auto error =
        run_ranks({.size = size, .comm = {.timeout = std::chrono::seconds(60), .is_checked = true}}, body);
    WEFT_CHECK(!error, "{}", error->message());
    return true;
  }};
}

/// Defined once in each test program.
PlanRanks plan_ranks();

}  // namespace weft
