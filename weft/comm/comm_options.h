#pragma once

#include <chrono>
#include <filesystem>

#include "weft/base/result.h"

namespace weft {

/// What holds for all groups of a run.
struct CommOptions {
  /// How long a rank waits for others in one operation before it takes them for dead.
  std::chrono::milliseconds timeout = std::chrono::minutes(10);
  /// Compares what the ranks ask for before data moves. Threads always do; between processes it costs an exchange of a
  /// few bytes for every operation.
  bool is_checked = false;
  /// Where the ranks' last operations are kept. Empty: threads keep none, processes use a new temporary folder.
  std::filesystem::path records;
};

/// From WEFT_COMM_TIMEOUT_S, WEFT_COMM_CHECKED (0 or 1) and WEFT_RECORDS; what is not set stays as in `defaults`.
Result<CommOptions> comm_options_from_environment(CommOptions defaults = {});

}  // namespace weft
