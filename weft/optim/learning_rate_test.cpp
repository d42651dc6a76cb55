#include "weft/optim/learning_rate.h"

#include <cmath>
#include <numbers>

#include <gtest/gtest.h>

namespace weft {
namespace {

using Kind = LearningRate::Kind;

TEST(LearningRate, WarmUpRisesLinearlyFromZeroToThePeak) {
  for (const Kind kind : {Kind::kConstant, Kind::kLinear, Kind::kCosine}) {
    const LearningRate rate{.kind = kind, .peak = 3e-4, .warmup_steps = 10, .total_steps = 100};
    for (int64_t step = 0; step <= 10; ++step)
      EXPECT_NEAR(rate.at(step), 3e-4 * static_cast<double>(step) / 10, 1e-18) << step;
  }
}

TEST(LearningRate, WithoutWarmUpTheFirstStepHasThePeak) {
  EXPECT_EQ((LearningRate{.peak = 0.5, .total_steps = 7}).at(0), 0.5);
}

TEST(LearningRate, TheWayDownIsTheClosedForm) {
  for (const double end : {0.0, 0.1, 1.0}) {
    const LearningRate linear{
        .kind = Kind::kLinear, .peak = 2, .warmup_steps = 5, .total_steps = 46, .end_fraction = end};
    LearningRate cosine = linear;
    cosine.kind = Kind::kCosine;
    for (int64_t step = 5; step <= 45; ++step) {
      const double progress = static_cast<double>(step - 5) / 40;
      EXPECT_NEAR(linear.at(step), 2 - 2 * (1 - end) * progress, 1e-14) << step;
      const double half_cosine = std::pow(std::cos(std::numbers::pi / 2 * progress), 2);
      EXPECT_NEAR(cosine.at(step), 2 * end + 2 * (1 - end) * half_cosine, 1e-14) << step;
    }
  }
}

TEST(LearningRate, TheLastStepHasTheEndAndItStays) {
  for (const Kind kind : {Kind::kLinear, Kind::kCosine}) {
    for (const int64_t warmup : {0, 5, 43}) {
      const LearningRate rate{.kind = kind, .peak = 2, .warmup_steps = warmup, .total_steps = 45, .end_fraction = 0.25};
      EXPECT_EQ(rate.at(warmup), 2);
      EXPECT_GT(rate.at(43), 0.5);
      for (const int64_t step : {44, 45, 60, 1000}) EXPECT_NEAR(rate.at(step), 0.5, 1e-15) << step;
    }
  }
  EXPECT_EQ((LearningRate{.kind = Kind::kConstant, .peak = 2, .total_steps = 45}).at(1000), 2);
}

// Three steps are at the beginning, the middle and the end of the half cosine: 1, 1/2 and 0 of the way's height.
TEST(LearningRate, ThreeStepsOfACosineAreItsBeginningMiddleAndEnd) {
  const LearningRate rate{.kind = Kind::kCosine, .peak = 1e-3, .total_steps = 3, .end_fraction = 0.1};
  EXPECT_EQ(rate.at(0), 1e-3);
  EXPECT_NEAR(rate.at(1), 5.5e-4, 1e-18);
  EXPECT_NEAR(rate.at(2), 1e-4, 1e-18);
}

TEST(LearningRate, ASingleStepAfterTheWarmUpHasThePeak) {
  const LearningRate rate{.kind = Kind::kLinear, .peak = 2, .warmup_steps = 9, .total_steps = 10};
  EXPECT_NEAR(rate.at(8), 2 * 8. / 9, 1e-15);
  EXPECT_EQ(rate.at(9), 2);
  EXPECT_EQ(rate.at(10), 0);
  EXPECT_EQ((LearningRate{.peak = 2, .total_steps = 1}).at(0), 2);
}

// Hugging Face transformers' schedules for a peak of 0.5, 4 steps of warm-up and 20 in all. Theirs come to their end
// after the last step, ours with it, so 21 of our steps have the rates of 20 of theirs and the end.
TEST(LearningRate, AgreesWithHuggingFacesSchedules) {
  struct Case {
    Kind kind;
    double end_fraction;
    std::vector<double> rates;
  };
  const std::vector<int64_t> steps = {0, 1, 4, 7, 12, 19, 20};
  const std::vector<Case> cases = {
      {Kind::kCosine, 0, {0, 0.125, 0.5, 0.45786740307563634, 0.25, 0.004803679899192392, 0}},
      {Kind::kLinear, 0, {0, 0.125, 0.5, 0.40625, 0.25, 0.03125, 0}},
      {Kind::kCosine, 0.1, {0, 0.125, 0.5, 0.4620806627680727, 0.275, 0.054323311909273156, 0.05}},
  };
  for (const Case& c : cases) {
    const LearningRate rate{
        .kind = c.kind, .peak = 0.5, .warmup_steps = 4, .total_steps = 21, .end_fraction = c.end_fraction};
    for (size_t i = 0; i < steps.size(); ++i) EXPECT_NEAR(rate.at(steps[i]), c.rates[i], 1e-15) << steps[i];
  }
}

// The same rate at the same sample, whatever the batch.
TEST(LearningRate, GoesBySamples) {
  for (const auto kind : {LearningRate::Kind::kConstant, LearningRate::Kind::kLinear, LearningRate::Kind::kCosine}) {
    const LearningRate rate{.kind = kind, .peak = 2e-3, .warmup_steps = 5, .total_steps = 41, .end_fraction = 0.1};
    for (int64_t step = 0; step < 41; ++step) {
      EXPECT_EQ(rate.at({.samples = 8 * step, .batch = 8, .first_batch = 8, .all_samples = 8 * 41}), rate.at(step));
      // Twice the batch in the warm-up, and after it up to where the last step begins.
      if (step % 2 != 0) continue;
      const double doubled = rate.at({.samples = 8 * step, .batch = 16, .first_batch = 8, .all_samples = 8 * 42});
      EXPECT_NEAR(doubled, rate.at(step), 1e-15) << step;
    }
  }
}

}  // namespace
}  // namespace weft
