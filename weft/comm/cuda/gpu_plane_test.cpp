#include "weft/comm/cuda/gpu_plane.h"

#include <vector>

#include <gtest/gtest.h>

namespace weft {
namespace {

TEST(GpuPlane, RanksOnGpusOfTheirOwnUseNccl) {
  const std::vector<RankGpu> gpus = {{"a", "1"}, {"a", "2"}, {"b", "1"}, {"b", "2"}};
  EXPECT_EQ(choose_gpu_plane(gpus).plane, GpuPlane::kNccl);
  EXPECT_EQ(choose_gpu_plane({gpus.data(), 1}).plane, GpuPlane::kNccl);
}

TEST(GpuPlane, RanksThatShareAGpuGoThroughTheHost) {
  const std::vector<RankGpu> gpus = {{"a", "1"}, {"b", "7"}, {"a", "2"}, {"b", "7"}};
  const GpuPlaneChoice choice = choose_gpu_plane(gpus);
  EXPECT_EQ(choice.plane, GpuPlane::kStaged);
  EXPECT_EQ(choice.reason, "ranks 1 and 3 share a GPU of host b");
}

TEST(GpuPlane, ARankWithoutAGpuSendsAllThroughTheHost) {
  const std::vector<RankGpu> gpus = {{"a", "1"}, {"b", ""}, {"a", "2"}};
  const GpuPlaneChoice choice = choose_gpu_plane(gpus);
  EXPECT_EQ(choice.plane, GpuPlane::kStaged);
  EXPECT_EQ(choice.reason, "rank 1 has no GPU");
}

TEST(GpuPlane, WithoutGpusThereIsNone) {
  const std::vector<RankGpu> gpus = {{"a", ""}, {"b", ""}};
  EXPECT_EQ(choose_gpu_plane(gpus).plane, GpuPlane::kNone);
}

}  // namespace
}  // namespace weft
