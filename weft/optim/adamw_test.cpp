#include "weft/optim/adamw.h"

#include <algorithm>
#include <cmath>
#include <random>

#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include "tests/support/optim/plain_adamw.h"
#include "weft/base/check.h"

namespace weft {
namespace {

AdamWState fresh(const std::vector<double>& weights, at::ScalarType type = at::kDouble) {
  const at::Tensor master = at::tensor(weights).to(type);
  return {.master = master, .moment1 = at::zeros_like(master), .moment2 = at::zeros_like(master)};
}

void expect_near(const at::Tensor& found, const std::vector<double>& expected, double tolerance) {
  const at::Tensor numbers = found.to(at::kDouble);
  ASSERT_EQ(numbers.numel(), static_cast<int64_t>(expected.size()));
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_NEAR(numbers.data_ptr<double>()[i], expected[i], tolerance) << "element " << i;
}

// torch.optim.AdamW (2.11, neither fused nor foreach) in double precision, five steps with these gradients and rates.
TEST(AdamW, GivesTheNumbersOfPyTorch) {
  const AdamWState state = fresh({1.0, -2.0, 0.5, 3.0});
  const AdamWSettings settings{.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1};
  for (int64_t step = 1; step <= 5; ++step) {
    const auto k = static_cast<double>(step);
    const at::Tensor gradient = at::tensor(std::vector<double>{0.1 * k, -0.2 * k * k, 0.3 / k, step % 2 ? -1.0 : 1.0});
    update_adamw(state, gradient, {}, settings, {.learning_rate = 0.01 * k, .number = step});
  }
  expect_near(state.master, {0.8436841159514454, -1.8420582025760677, 0.36396657783198044, 2.982184337398285}, 1e-13);
  expect_near(state.moment1, {0.13144099999999997, -1.0052419999999997, 0.051467999999999986, -0.08370999999999998},
              1e-14);
  expect_near(state.moment2, {0.026283253125000024, 1.911670012500002, 0.005528262500000005, 0.22621906250000018},
              1e-14);
}

// 37 elements: whole vector registers, up to those of four or eight, and a rest, whose code rounds otherwise. So copies
// of a weight whose stretches end elsewhere may part in their last bits; others do not.
TEST(AdamW, EqualElementsPartByRoundingAndOnlyAtTheEndOfAStretch) {
  constexpr int64_t kElements = 37, kInRegisters = 32;
  std::mt19937_64 random(5);
  std::normal_distribution<double> draw;
  for (int round = 0; round < 20; ++round) {
    const AdamWState state = fresh(std::vector<double>(kElements, draw(random)));
    for (int64_t step = 1; step <= 20; ++step) {
      const at::Tensor gradient = at::tensor(std::vector<double>(kElements, draw(random)));
      update_adamw(state, gradient, {}, {.epsilon = 1e-3}, {.learning_rate = 1e-3, .number = step});
    }
    for (const at::Tensor& numbers : {state.master, state.moment1, state.moment2}) {
      const double* all = numbers.const_data_ptr<double>();
      for (int64_t i = 1; i < kElements; ++i) {
        const double tolerance = i < kInRegisters ? 0 : 1e-14 * std::max(1.0, std::abs(all[0]));
        EXPECT_NEAR(all[i], all[0], tolerance) << "element " << i;
      }
    }
  }
}

// 1003 elements: whole vector registers and a rest.
TEST(AdamW, IsItsFormula) {
  for (const auto& [type, tolerance] : {std::pair{at::kDouble, 1e-12}, std::pair{at::kFloat, 2e-5}}) {
    std::mt19937_64 random(1);
    std::normal_distribution<double> draw;
    const auto numbers = [&] {
      std::vector<double> all(1003);
      for (double& x : all) x = draw(random);
      return all;
    };
    for (const double decay : {0.0, 0.1}) {
      const AdamWSettings settings{.weight_decay = decay};
      PlainAdamW plain{.weights = numbers()};
      const AdamWState state = fresh(plain.weights, type);
      for (int64_t step = 1; step <= 20; ++step) {
        const std::vector<double> gradient = numbers();
        plain.update(gradient, settings, 1e-2, step);
        update_adamw(state, at::tensor(gradient).to(type), {}, settings, {.learning_rate = 1e-2, .number = step});
      }
      expect_near(state.master, plain.weights, tolerance);
      expect_near(state.moment1, plain.moment1, tolerance);
      expect_near(state.moment2, plain.moment2, tolerance);
    }
  }
}

TEST(AdamW, RefusesGradientsOrValuesOfAnotherSize) {
  const AdamWState state = fresh({1, 2});
  const at::Tensor one = at::tensor(std::vector<double>{1}), two = at::tensor(std::vector<double>{1, 2});
  EXPECT_THROW(update_adamw(state, one, {}, {}, {.learning_rate = 1}), InternalError);
  EXPECT_THROW(update_adamw(state, two, one, {}, {.learning_rate = 1}), InternalError);
}

TEST(AdamW, ScalesGradientsOfAnyTypeAndWritesValues) {
  const std::vector<double> gradient = {0.5, -2, 4, 1};
  const AdamWState plain = fresh({1, -2, 3, 4}, at::kFloat), scaled = fresh({1, -2, 3, 4}, at::kFloat);
  update_adamw(plain, at::tensor(gradient).to(at::kFloat), {}, {}, {.learning_rate = 0.1});
  const at::Tensor values = at::zeros_like(scaled.master, at::kBFloat16);
  const at::Tensor halves = at::tensor(gradient).mul(2).to(at::kBFloat16);
  update_adamw(scaled, halves, values, {}, {.learning_rate = 0.1, .gradient_scale = 0.5});
  EXPECT_TRUE(scaled.master.equal(plain.master)) << scaled.master << plain.master;
  EXPECT_TRUE(values.equal(plain.master.to(at::kBFloat16)));
}

/// Changes that nearest rounding would lose every time: a rate of 1e-3 on weights of 1, where bf16 has steps of 2^-8
/// upwards and 2^-9 downwards.
TEST(AdamW, RoundsStatesInBf16ByChanceSoThatSmallChangesAddUp) {
  constexpr int64_t kElements = 20'000, kSteps = 40;
  const auto run = [&](int64_t first_element, int64_t count) {
    const AdamWState state = fresh(std::vector<double>(static_cast<size_t>(count), 1.0), at::kBFloat16);
    for (int64_t step = 1; step <= kSteps; ++step) {
      const at::Tensor gradient = at::tensor(std::vector<double>(static_cast<size_t>(count), 1.0)).to(at::kBFloat16);
      update_adamw(
          state, gradient, {}, {.weight_decay = 0},
          {.learning_rate = 1e-4, .number = step, .key = static_cast<uint64_t>(step), .first_element = first_element});
    }
    return state;
  };
  const AdamWState all = run(0, kElements);
  // With equal gradients every update is the learning rate.
  EXPECT_NEAR(all.master.to(at::kDouble).mean().item<double>(), 1 - 1e-4 * kSteps, 1e-4);
  EXPECT_NEAR(all.moment2.to(at::kDouble).mean().item<double>(), 1 - std::pow(0.95, kSteps), 1e-3);
  // What is drawn for an element does not depend on who else is updated.
  const AdamWState part = run(1000, 500);
  EXPECT_TRUE(part.master.equal(all.master.narrow(0, 1000, 500)));
  EXPECT_TRUE(part.moment1.equal(all.moment1.narrow(0, 1000, 500)));
}

}  // namespace
}  // namespace weft
