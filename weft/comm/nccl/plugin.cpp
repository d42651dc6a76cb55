#include "weft/comm/nccl/environment_world.h"
#include "weft/comm/nccl/nccl_api.h"
#include "weft/comm/nccl/nccl_plane.h"

namespace weft {
namespace {

Result<std::unique_ptr<NcclPlane>> make_plane(ProcessRank& rank, int gpu) {
  WEFT_TRY(std::unique_ptr<NcclPlane> plane, OwnNcclPlane::create(rank, gpu));
  return plane;
}

}  // namespace
}  // namespace weft

extern "C" __attribute__((visibility("default"))) const weft::NcclApi* weft_nccl_api() {
  static const weft::NcclApi api{
      .version = weft::kNcclApiVersion, .make_plane = weft::make_plane, .run = weft::run_environment_rank};
  return &api;
}
