#include "weft/base/paths.h"

#include <algorithm>

namespace weft {

namespace fs = std::filesystem;

std::vector<fs::path> paths_in(const fs::path& folder, std::error_code& problem) {
  std::vector<fs::path> paths;
  for (fs::directory_iterator entry(folder, problem), end; !problem && entry != end; entry.increment(problem))
    paths.push_back(entry->path());
  std::sort(paths.begin(), paths.end());
  return paths;
}

fs::path without_links(const fs::path& path) {
  std::error_code problem;
  // A relative path of which nothing is there would stay relative.
  const fs::path whole = fs::absolute(path, problem);
  const fs::path found = fs::weakly_canonical(problem ? path : whole, problem);
  return problem ? whole_path(path) : found;
}

fs::path whole_path(const fs::path& path) {
  std::error_code problem;
  const fs::path whole = fs::absolute(path, problem);
  return (problem ? path : whole).lexically_normal();
}

}  // namespace weft
