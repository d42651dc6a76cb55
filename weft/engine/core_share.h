#pragma once

#include <optional>
#include <string>
#include <vector>

#include "weft/base/error.h"
#include "weft/comm/launch.h"
#include "weft/engine/train_config.h"

namespace weft {

/// Threads a core that nothing is gained by and a machine still bears.
inline constexpr int64_t kMostThreadsPerCore = 32;

/// The cores that this process may use.
int usable_cores();

/// How ranks share the cores of their host.
struct CoreShare {
  int64_t cores = 1;
  int64_t ranks = 1;  ///< that share them
  int64_t threads_per_rank = 1;

  /// Threads that want one core.
  double threads_per_core() const { return static_cast<double>(ranks * threads_per_rank) / static_cast<double>(cores); }
};

/// `wanted_threads` of each rank; 0 for an equal share of the cores, and for processes that their launcher has bound to
/// cores all of these.
CoreShare share_cores(const Launch& launch, int64_t world_size, int64_t wanted_threads);

/// A number of threads that no machine of so many cores can mean.
std::optional<Error> check_threads(const TrainConfig& config, int64_t cores);

/// What the share costs, for the beginning of a run: nothing where every thread has a core.
std::vector<std::string> notes_of(const CoreShare& share, const TrainConfig& config);

}  // namespace weft
