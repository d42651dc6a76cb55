#pragma once

#include <cstdint>
#include <functional>

#include "weft/comm/world.h"

namespace weft {

/// The ranks that a test program has: threads, or the processes that mpirun has started.
struct PlanRanks {
  bool are_processes = false;  ///< each of them knows only what its own rank did
  /// Runs the body on so many; false where there are others.
  std::function<bool(int64_t size, const std::function<void(World&)>& body)> run;
};

/// Defined once in each test program.
PlanRanks plan_ranks();

}  // namespace weft
