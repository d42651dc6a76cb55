#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "weft/layers/own_kernels.h"
#include "weft/optim/adamw.h"
#include "weft/optim/squared_norm.h"
#include "weft/tensor/cuda_library.h"

namespace weft {
namespace {

const at::Device kGpu(at::kCUDA, 0);

class OwnUpdate : public testing::Test {
 protected:
  void SetUp() override {
    const auto has_gpu = load_cuda_library();
    if (!has_gpu || !*has_gpu) GTEST_SKIP() << "NO GPU: own kernels are not tested on this machine";
    const auto missing = missing_kernels(kGpu);
    ASSERT_FALSE(missing) << missing->message();
    at::manual_seed(3);
  }
};

AdamWState moved(const AdamWState& state, at::Device device) {
  return {state.master.to(device, state.master.scalar_type(), false, true),
          state.moment1.to(device, state.moment1.scalar_type(), false, true),
          state.moment2.to(device, state.moment2.scalar_type(), false, true)};
}

TEST_F(OwnUpdate, IsTheProcessorsForEveryTypeAndLength) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16})
    for (const at::ScalarType gradient_type : {at::kFloat, at::kBFloat16})
      for (const int64_t size : {1, 7, 8, 1003, 300'000}) {
        const at::Tensor master = at::randn({size}).to(type);
        const AdamWState cpu{master, at::zeros_like(master), at::zeros_like(master)};
        const AdamWState gpu = moved(cpu, kGpu);
        const bool has_values = type == at::kFloat;
        const at::Tensor cpu_values = has_values ? at::zeros({size}, at::kBFloat16) : at::Tensor();
        const at::Tensor gpu_values = has_values ? cpu_values.to(kGpu) : at::Tensor();
        for (int64_t step = 1; step <= 3; ++step) {
          const at::Tensor gradient = at::randn({size}).to(gradient_type);
          const AdamWStep numbers{.learning_rate = 1e-2,
                                  .number = step,
                                  .gradient_scale = 0.5,
                                  .key = 1234567 * static_cast<uint64_t>(step),
                                  .first_element = 64};
          update_adamw(gpu, gradient.to(kGpu), gpu_values, {}, numbers);
          update_adamw(cpu, gradient.clone(), cpu_values, {}, numbers);
        }
        const auto apart = [](const at::Tensor& a, const at::Tensor& b) {
          return (a.to(at::kCPU).to(at::kDouble) - b.to(at::kDouble)).abs();
        };
        if (type == at::kFloat) {
          EXPECT_LT(apart(gpu.master, cpu.master).max().item<double>(), 1e-5) << size;
          EXPECT_LT(apart(gpu.moment2, cpu.moment2).max().item<double>(), 1e-5) << size;
          EXPECT_TRUE(gpu_values.equal(gpu.master.to(at::kBFloat16))) << size;
        } else {
          // Both draw the same, so that only sums which differ in their last bit can be rounded to two neighbours.
          const at::Tensor differs = apart(gpu.master, cpu.master).gt(0);
          EXPECT_LT(differs.to(at::kDouble).mean().item<double>(), 0.01) << size;
          EXPECT_LT(apart(gpu.master, cpu.master).max().item<double>(), 0.05) << size;
        }
      }
}

TEST_F(OwnUpdate, SumsSquaresInDoublePrecision) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16})
    for (const int64_t size : {1, 8, 15, 70'001, 30'000'000}) {
      const at::Tensor x = at::randn({size}, kGpu).to(type);
      const double exact = x.to(at::kDouble).square().sum().item<double>();
      EXPECT_NEAR(squared_norm(x).item<double>() / exact, 1, 1e-6) << size;
    }
}

TEST_F(OwnUpdate, SumsSquaresOfMorePartsThanOneKernelTakesEachWithItsFactor) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    std::vector<WeightedElements> parts;
    double exact = 0;
    for (int i = 0; i < 300; ++i) {
      const int64_t size = i % 7 == 0 ? 0 : i % 3 == 0 ? 16'384 * (1 + i % 4) : 1 + 977 * i;
      // Some begin where eight elements are not read at once.
      const at::Tensor x = at::randn({size + 1}, kGpu).to(i % 11 == 0 ? at::kFloat : type).narrow(0, i % 2, size);
      parts.push_back({x, 0.25 * i});
      exact += 0.25 * i * x.to(at::kDouble).square().sum().item<double>();
    }
    EXPECT_NEAR(weighted_squares(parts, kGpu).item<double>() / exact, 1, 1e-6);
    EXPECT_EQ(weighted_squares(parts, kGpu).item<double>(), weighted_squares(parts, kGpu).item<double>());
    EXPECT_EQ(weighted_squares({}, kGpu).item<double>(), 0);
  }
}

}  // namespace
}  // namespace weft
