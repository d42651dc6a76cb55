#include "weft/simulate/step_spread.h"

#include <limits>

#include <gtest/gtest.h>

namespace weft {
namespace {

TEST(StepSpread, SaysHowStepsLie) {
  std::vector<double> steps;
  for (int i = 10; i >= 0; --i) steps.push_back(100 + i);
  const StepSpread spread = spread_of(steps);
  EXPECT_DOUBLE_EQ(spread.mean_ms, 105);
  EXPECT_DOUBLE_EQ(spread.shortest_ms, 100);
  EXPECT_DOUBLE_EQ(spread.p10_ms, 101);
  EXPECT_DOUBLE_EQ(spread.p90_ms, 109);
  EXPECT_DOUBLE_EQ(spread.longest_ms, 110);
  EXPECT_NEAR(spread.deviation_ms, 3.3166, 1e-4);
  // Ten degrees of freedom: 2.23 standard errors.
  EXPECT_NEAR(spread.error_ms, 2.23, 1e-3);
}

TEST(StepSpread, OneStepHasNone) {
  const StepSpread spread = spread_of({7});
  EXPECT_EQ(spread.mean_ms, 7);
  EXPECT_EQ(spread.p10_ms, 7);
  EXPECT_EQ(spread.deviation_ms, 0);
  EXPECT_EQ(error_of_mean(1, 1), std::numeric_limits<double>::infinity());
}

}  // namespace
}  // namespace weft
