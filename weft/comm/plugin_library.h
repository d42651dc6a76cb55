#pragma once

#include <filesystem>
#include <string>

#include "weft/base/result.h"

namespace weft {

/// A library of Weft's own that is loaded when a run needs it.
struct PluginLibrary {
  std::string file;  ///< "libweft_mpi.so"
  std::string what;  ///< "the MPI backend"
  std::string entry_point;
  std::string advice;  ///< where it cannot be loaded
};

/// Loads it, from the given path or else from where it lies: beside the program or in ../lib, or beside the library
/// that this code is in. Returns its entry point. It stays loaded until the process ends.
Result<void*> load_plugin(const PluginLibrary& library, const std::filesystem::path& given);

}  // namespace weft
