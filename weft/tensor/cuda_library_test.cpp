#include "weft/tensor/cuda_library.h"

#include <cstdio>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include "weft/comm/cuda/cuda_driver.h"
#include "weft/tensor/local_tensor.h"

namespace weft {
namespace {

TEST(CudaLibrary, WithoutAGpuThereIsNone) {
  if (cuda_driver()) GTEST_SKIP() << "there is a GPU";
  ASSERT_TRUE(load_cuda_library().ok());
  EXPECT_FALSE(*load_cuda_library());
}

TEST(CudaLibrary, TensorsAreOnTheGpuOnceItIsLoaded) {
  const auto loaded = load_cuda_library();
  ASSERT_TRUE(loaded.ok()) << loaded.error().message();
  if (!*loaded) {
    std::fprintf(stderr, "skipped: no GPU, or LibTorch has no CUDA half\n");
    GTEST_SKIP() << "no GPU, or LibTorch has no CUDA half";
  }
  const at::Tensor x = at::ones({3, 4}, at::TensorOptions().device(at::kCUDA));
  EXPECT_EQ((x + x).sum().item<double>(), 24);
  const Buffer buffer = buffer_of(x);
  EXPECT_EQ(buffer.device, (Device{DeviceKind::kCuda, 0}));
  EXPECT_EQ(buffer.count, 12);
}

}  // namespace
}  // namespace weft
