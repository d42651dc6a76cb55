#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace weft {

/// Which GPU a rank works with, as its peers see it.
struct RankGpu {
  std::string host;
  std::string uuid;  ///< empty: the rank has none
};

/// How processes move GPU memory.
enum class GpuPlane : uint8_t {
  kNone,    ///< no rank has a GPU
  kStaged,  ///< through the host's memory: ranks share a GPU, or some have none
  kNccl,    ///< every rank has a GPU to itself
};

struct GpuPlaneChoice {
  GpuPlane plane = GpuPlane::kNone;
  std::string reason;  ///< "ranks 0 and 1 share a GPU of host a"
};

/// By rank.
GpuPlaneChoice choose_gpu_plane(std::span<const RankGpu> gpus);

}  // namespace weft
