#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "weft/base/result.h"

namespace weft {

/// What every library of a user's own begins with, in every version.
struct LibraryHead {
  const char* version;
  uint64_t layout;
};

/// What a library must be.
struct LibraryKind {
  const char* variable;     ///< of the environment, that names libraries, with ":" between their paths
  const char* entry_point;  ///< a function without arguments that gives a LibraryHead
  const char* macro;        ///< that defines it
  uint64_t layout;  ///< a number that differs where a library and the program lay out differently what they share
};

/// Loads a library, which stays until the process ends. One that cannot be loaded, is of another version of Weft or is
/// built otherwise is an error that names it.
Result<const LibraryHead*> load_library(const std::string& path, const LibraryKind& kind);

/// The paths of a list with ":" between them.
std::vector<std::string> listed_paths(const std::string& paths);

/// One number of several.
constexpr uint64_t layout_of(std::initializer_list<uint64_t> parts) {
  uint64_t layout = 14695981039346656037ULL;
  for (const uint64_t part : parts) layout = (layout ^ part) * 1099511628211ULL;
  return layout;
}

}  // namespace weft
