#include "weft/families/loaded_library.h"

#include <algorithm>
#include <cstring>
#include <dlfcn.h>
#include <filesystem>

#include <fmt/format.h>

#include "weft/base/paths.h"
#include "weft/base/version.h"

namespace weft {

Result<const LibraryHead*> load_library(const std::string& path, const LibraryKind& kind) {
  const auto failure = [&](std::string problem, std::string advice) {
    return Error{.source = path, .problem = std::move(problem), .advice = std::move(advice)};
  };
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    return failure(fmt::format("is named by {}, but there is no such file", kind.variable),
                   "Give the path of a library that is built for it.");
  }
  const std::string whole = whole_path(path).string();
  // Kept loaded until the process ends: what it lists are functions in it.
  void* library = dlopen(whole.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    return failure(fmt::format("cannot be loaded: {}", dlerror()), "Build it again, for this machine.");
  const auto get = reinterpret_cast<const LibraryHead* (*)()>(dlsym(library, kind.entry_point));
  if (get == nullptr) {
    return failure(fmt::format("is a library without {}", kind.entry_point),
                   fmt::format("Name what is in it with {}, once.", kind.macro));
  }
  const LibraryHead* found = get();
  const std::string again = "Build it again, against the package that is installed with this program.";
  if (std::strcmp(found->version, kVersion) != 0)
    return failure(fmt::format("is built for Weft {}, but this is Weft {}", found->version, kVersion), again);
  if (found->layout != kind.layout)
    return failure(fmt::format("is built with another compiler or other headers of Weft {}", kVersion), again);
  return found;
}

std::vector<std::string> listed_paths(const std::string& paths) {
  std::vector<std::string> listed;
  for (size_t begin = 0; begin <= paths.size();) {
    const size_t end = std::min(paths.find(':', begin), paths.size());
    if (end > begin) listed.push_back(paths.substr(begin, end - begin));
    begin = end + 1;
  }
  return listed;
}

}  // namespace weft
