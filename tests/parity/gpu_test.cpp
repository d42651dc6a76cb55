#include <chrono>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/parity/fixture.h"
#include "weft/models/load_weights.h"
#include "weft/tensor/cuda_library.h"

// The fixtures on a GPU. Products round differently there, so what is equal to six digits on the CPU is to five.

namespace weft::parity {
namespace {

class ModelsOnGpu : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    const auto has_gpu = load_cuda_library();
    ASSERT_TRUE(has_gpu.ok()) << has_gpu.error().message();
    if (*has_gpu) return;
    fmt::print(stderr, "SKIPPED: no GPU here, so models are not tried on one\n");
    GTEST_SKIP() << "no GPU";
  }
};

TEST_P(ModelsOnGpu, LogitsLossAndGradientsAreEqual) {
  const auto options = at::TensorOptions().dtype(at::kFloat).device(at::kCUDA);
  const LoadedModel loaded = load_model(GetParam().folder, options);
  const LoadedCase given = load_case(GetParam(), loaded, options);
  const double logits = relative_difference(loaded.network.logits(given.inputs, {}), given.expected.at("logits"));
  EXPECT_LE(logits, 1e-4);
  const at::Tensor loss = loaded.network.loss_sum(given.inputs, {}) / static_cast<double>(given.inputs.num_targets());
  EXPECT_LE(relative_difference(loss, given.expected.at("loss")), 1e-4);
  loss.backward();
  const NamedWeights weights(loaded.parameters);
  double worst = 0;
  double largest = 0;
  for (const auto& [name, tensor] : given.expected) {
    if (name.starts_with("grad.")) largest = std::max(largest, tensor.abs().max().item<double>());
  }
  for (const std::string& name : weights.names()) {
    const auto expected = given.expected.find("grad." + name);
    if (expected == given.expected.end()) continue;
    const double difference = relative_difference(weights.gradient(name), expected->second, 1e-4 * largest);
    EXPECT_LE(difference, 1e-3) << name;
    worst = std::max(worst, difference);
  }
  fmt::print("  logits {:.1e}, gradients {:.1e}\n", logits, worst);
}

TEST_P(ModelsOnGpu, Bfloat16WithGradientsInFp32) {
  const auto options = at::TensorOptions().dtype(at::kBFloat16).device(at::kCUDA);
  const LoadedModel loaded = load_model(GetParam().folder, options);
  for (const ParameterPtr& parameter : loaded.parameters) parameter->gradient_type = at::kFloat;
  const LoadedCase given = load_case(GetParam(), loaded, options);
  const at::Tensor expected = given.expected.at("logits");
  at::Tensor found;
  {
    const at::NoGradGuard no_graph;
    found = loaded.network.logits(given.inputs, {}).cpu().to(at::kFloat);
  }
  const double error = ((found - expected).norm() / expected.norm()).item<double>();
  EXPECT_LE(error, 1.5 * given.facts.at("bf16_logits_error").get<double>());
  const at::Tensor loss = loaded.network.loss_sum(given.inputs, {}) / static_cast<double>(given.inputs.num_targets());
  loss.backward();
  const NamedWeights weights(loaded.parameters);
  for (const std::string& name : weights.names()) {
    const at::Tensor gradient = weights.gradient(name);
    if (!gradient.defined()) continue;
    EXPECT_EQ(gradient.scalar_type(), at::kFloat) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Fixtures, ModelsOnGpu, testing::ValuesIn(all_cases()),
                         [](const auto& named) { return named.param.text(); });

}  // namespace
}  // namespace weft::parity
