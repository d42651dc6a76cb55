#pragma once

#include <cstdint>
#include <string>

#include "weft/base/result.h"

namespace weft {

/// How the ranks of this run come about.
struct Launch {
  enum class Kind : uint8_t {
    kThreads,
    kMpi,          ///< mpirun or Slurm started this process as one of several
    kEnvironment,  ///< a launcher that sets WORLD_SIZE, RANK and where rank 0 is, as torchrun does
  };
  Kind kind = Kind::kThreads;
  int64_t size = 0;  ///< processes that a launcher started; 0 for threads and where it does not say
  int64_t rank = 0;  ///< of this process among them

  /// Whether this process tells of errors that all have: the one of rank 0, and one whose rank cannot be right, since
  /// there may be no other.
  bool is_speaker() const { return rank == 0 || (size > 0 && rank >= size); }
};

/// Threads, unless a launcher started this process as one of several.
Launch detect_launch();

/// The ranks that share this process's host: a row of neighbours, as launchers place them unless told otherwise.
struct HostRanks {
  int64_t first = 0;
  int64_t count = 1;

  bool operator==(const HostRanks&) const = default;
};

/// All of them for threads, and for processes whose launcher does not say.
HostRanks ranks_of_host(const Launch& launch, int64_t world_size);

/// What the environment says of a process among others.
struct EnvironmentRank {
  int64_t rank = 0;
  int64_t size = 1;
  int local_rank = 0;  ///< among those of its host: the GPU that it uses
  std::string master_host;
  uint16_t master_port = 0;  ///< where rank 0 listens

  bool operator==(const EnvironmentRank&) const = default;
};

/// From WORLD_SIZE, RANK, LOCAL_RANK, MASTER_ADDR and MASTER_PORT. The Error names the variable that is missing or
/// wrong.
Result<EnvironmentRank> read_environment_rank();

}  // namespace weft
