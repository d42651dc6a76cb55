#include "weft/families/family_library.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <filesystem>

#include <fmt/format.h>

namespace weft {
namespace {

Error failure(const std::string& path, std::string problem, std::string advice) {
  return {.source = path, .problem = std::move(problem), .advice = std::move(advice)};
}

Result<std::vector<Family>> families_in(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    return failure(path, fmt::format("is named by {}, but there is no such file", kFamilyLibraries),
                   "Give the path of a family's library.");
  }
  const std::string whole = std::filesystem::absolute(path).string();
  // Kept loaded until the process ends: families are functions in it.
  void* library = dlopen(whole.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    return failure(path, fmt::format("cannot be loaded: {}", dlerror()), "Build it again, for this machine.");
  const auto get = reinterpret_cast<const FamilyLibrary* (*)()>(dlsym(library, kFamilyEntryPoint));
  if (get == nullptr) {
    return failure(path, fmt::format("is a library without {}", kFamilyEntryPoint),
                   "Name its families with WEFT_FAMILY_LIBRARY, once.");
  }
  const FamilyLibrary* found = get();
  const std::string again = "Build it again, against the package that is installed with this program.";
  if (std::strcmp(found->version, kVersion) != 0)
    return failure(path, fmt::format("is built for Weft {}, but this is Weft {}", found->version, kVersion), again);
  if (found->layout != family_layout())
    return failure(path, fmt::format("is built with another compiler or other headers of Weft {}", kVersion), again);
  std::vector<Family> listed;
  found->list(listed);
  return listed;
}

}  // namespace

Result<std::vector<Family>> load_families(const std::string& paths) {
  std::vector<Family> all;
  for (size_t begin = 0; begin <= paths.size();) {
    const size_t end = std::min(paths.find(':', begin), paths.size());
    const std::string path = paths.substr(begin, end - begin);
    begin = end + 1;
    if (path.empty()) continue;
    WEFT_TRY(const std::vector<Family> own, families_in(path));
    for (const Family& family : own) {
      const auto is_same = [&](const Family& known) { return known.model_type == family.model_type; };
      if (std::any_of(families().begin(), families().end(), is_same) || std::any_of(all.begin(), all.end(), is_same)) {
        return failure(path, fmt::format("has the family {}, which is known already", family.model_type),
                       "Call it otherwise, here and in configurations.");
      }
      all.push_back(family);
    }
  }
  return all;
}

Result<const std::vector<Family>*> families_of_libraries() {
  static const Result<std::vector<Family>> loaded = [] {
    const char* paths = std::getenv(kFamilyLibraries);
    return load_families(paths == nullptr ? "" : paths);
  }();
  if (!loaded) return loaded.error();
  return &*loaded;
}

}  // namespace weft
