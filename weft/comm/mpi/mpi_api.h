#pragma once

#include <functional>
#include <optional>

#include "weft/comm/run_ranks.h"

namespace weft {

/// The door to the library with the MPI backend, which is loaded when a run needs it. Both sides are built together.
struct MpiApi {
  const char* version;
  std::optional<Error> (*run)(const RunOptions& options, const std::function<void(World&)>& body);
};

inline constexpr char kMpiEntryPoint[] = "weft_mpi_api";
inline constexpr char kMpiApiVersion[] = "2";

}  // namespace weft
