#include "weft/engine/host_memory.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
#include <vector>

namespace weft {
namespace {

namespace fs = std::filesystem;

/// Lines of a name and a number, with or without a colon: meminfo, memory.stat.
std::map<std::string, int64_t> read_counts(const fs::path& file) {
  std::map<std::string, int64_t> counts;
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    const size_t end = line.find_first_of(": ");
    if (end == std::string::npos) continue;
    counts[line.substr(0, end)] = std::strtoll(line.c_str() + end + 1, nullptr, 10);
  }
  return counts;
}

/// "max" stands for no limit and reads as no number.
std::optional<int64_t> read_number(const fs::path& file) {
  std::ifstream text(file);
  if (int64_t number = 0; text >> number) return number;
  return std::nullopt;
}

/// What a control group still allows: files in its page cache can be dropped.
std::optional<int64_t> left_in_group(const fs::path& folder, const char* limit_file, const char* used_file,
                                     const char* cache_name) {
  const auto limit = read_number(folder / limit_file);
  if (!limit) return std::nullopt;
  const auto counts = read_counts(folder / "memory.stat");
  const auto cache = counts.find(cache_name);
  const int64_t used = read_number(folder / used_file).value_or(0) - (cache == counts.end() ? 0 : cache->second);
  return std::max<int64_t>(0, *limit - std::max<int64_t>(0, used));
}

/// The folder of this process's group and of those around it.
std::vector<fs::path> group_folders(const fs::path& hierarchy, const fs::path& memberships, const std::string& prefix) {
  std::vector<fs::path> folders = {hierarchy};
  std::ifstream lines(memberships);
  for (std::string line; std::getline(lines, line);) {
    if (line.find(prefix) == std::string::npos) continue;
    fs::path folder = hierarchy;
    for (const fs::path& part : fs::path(line.substr(line.rfind(':') + 1)).relative_path())
      folders.push_back(folder /= part);
    break;
  }
  return folders;
}

}  // namespace

std::optional<int64_t> available_host_memory(const fs::path& root) {
  const auto counts = read_counts(root / "proc/meminfo");
  const auto available = counts.find("MemAvailable"), swap = counts.find("SwapFree");
  if (available == counts.end()) return std::nullopt;
  int64_t most = (available->second + (swap == counts.end() ? 0 : swap->second)) * 1024;
  const fs::path groups = root / "sys/fs/cgroup", memberships = root / "proc/self/cgroup";
  for (const fs::path& folder : group_folders(groups, memberships, "0::/")) {
    if (const auto left = left_in_group(folder, "memory.max", "memory.current", "inactive_file"))
      most = std::min(most, *left);
  }
  // The first version of control groups, which some machines still have.
  for (const fs::path& folder : group_folders(groups / "memory", memberships, ":memory:")) {
    if (const auto left =
            left_in_group(folder, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"))
      most = std::min(most, *left);
  }
  return most;
}

}  // namespace weft
