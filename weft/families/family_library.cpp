#include "weft/families/family_library.h"

#include <algorithm>
#include <cstdlib>

#include <fmt/format.h>

namespace weft {

Result<std::vector<Family>> load_families(const std::string& paths) {
  const LibraryKind kind{.variable = kFamilyLibraries,
                         .entry_point = kFamilyEntryPoint,
                         .macro = "WEFT_FAMILY_LIBRARY",
                         .layout = family_layout()};
  std::vector<Family> all;
  for (const std::string& path : listed_paths(paths)) {
    WEFT_TRY(const LibraryHead* const head, load_library(path, kind));
    std::vector<Family> own;
    reinterpret_cast<const FamilyLibrary*>(head)->list(own);
    for (const Family& family : own) {
      const auto is_same = [&](const Family& known) { return known.model_type == family.model_type; };
      if (std::any_of(families().begin(), families().end(), is_same) || std::any_of(all.begin(), all.end(), is_same)) {
        return Error{.source = path,
                     .problem = fmt::format("has the family {}, which is known already", family.model_type),
                     .advice = "Call it otherwise, here and in configurations."};
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
