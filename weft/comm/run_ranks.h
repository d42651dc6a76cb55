#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "weft/comm/launch.h"
#include "weft/comm/mpi/mpi_tuning.h"
#include "weft/comm/world.h"

namespace weft {

struct RunOptions {
  /// How many ranks are needed. Threads: so many are made. Processes: so many must be there; 0 takes what is there.
  int64_t size = 0;
  CommOptions comm;
  /// The library with the MPI backend; empty: looked for beside the program.
  std::filesystem::path mpi_library;
  /// The same of the NCCL backend, which processes with GPUs load.
  std::filesystem::path nccl_library;
  MpiTuning mpi_tuning;
  /// Shows the message of a failed run, in the one process that is to, before others end; also where this process's own
  /// thread cannot come to it. What it has shown is not to be printed again (RankFailure::should_print). For
  /// processes.
  std::function<void(const std::string&)> report;
};

/// Runs the body once for every rank that this process stands for: all of them as threads, or the one of this
/// process. Returns when they have ended, with an Error if the ranks cannot be had. Throws a RankFailure when a rank
/// failed; of several processes only one is to print it (RankFailure::should_print), and all are to exit then. With
/// MPI it can be called once in a process.
std::optional<Error> run_ranks(const RunOptions& options, const std::function<void(World&)>& body);

}  // namespace weft
