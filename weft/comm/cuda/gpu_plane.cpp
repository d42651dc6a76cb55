#include "weft/comm/cuda/gpu_plane.h"

#include <map>
#include <optional>
#include <utility>

#include <fmt/format.h>

namespace weft {

GpuPlaneChoice choose_gpu_plane(std::span<const RankGpu> gpus) {
  std::map<std::pair<std::string, std::string>, size_t> users;
  std::optional<size_t> without;
  std::optional<std::pair<size_t, size_t>> sharing;
  for (size_t rank = 0; rank < gpus.size(); ++rank) {
    if (gpus[rank].uuid.empty()) {
      if (!without) without = rank;
      continue;
    }
    const auto [first, is_new] = users.try_emplace({gpus[rank].host, gpus[rank].uuid}, rank);
    if (!is_new && !sharing) sharing = {first->second, rank};
  }
  if (users.empty()) return {GpuPlane::kNone, "no rank has a GPU"};
  if (without) return {GpuPlane::kStaged, fmt::format("rank {} has no GPU", *without)};
  if (sharing) {
    return {GpuPlane::kStaged, fmt::format("ranks {} and {} share a GPU of host {}", sharing->first, sharing->second,
                                           gpus[sharing->first].host)};
  }
  return {GpuPlane::kNccl, "every rank has a GPU to itself"};
}

}  // namespace weft
