#include "weft/engine/host_memory.h"

#include <algorithm>
#include <fstream>
#include <string>

namespace weft {

std::optional<int64_t> available_host_memory() {
  std::ifstream info("/proc/meminfo");
  std::optional<int64_t> available;
  int64_t swap = 0;
  std::string line;
  while (std::getline(info, line)) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const std::string key = line.substr(0, colon);
    if (key != "MemAvailable" && key != "SwapFree") continue;
    const int64_t bytes = std::strtoll(line.c_str() + colon + 1, nullptr, 10) * 1024;
    if (key == "SwapFree")
      swap = bytes;
    else
      available = bytes;
  }
  if (!available) return std::nullopt;
  int64_t most = *available + swap;
  // "max" stands for no limit and reads as no number.
  std::ifstream limit("/sys/fs/cgroup/memory.max");
  if (int64_t bytes = 0; limit >> bytes) most = std::min(most, bytes);
  return most;
}

}  // namespace weft
