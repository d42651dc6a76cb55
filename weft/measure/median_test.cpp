#include "weft/measure/median.h"

#include <cmath>
#include <random>

#include <gtest/gtest.h>

namespace weft {
namespace {

std::vector<double> drawn_times(std::mt19937_64& random, int64_t count) {
  // Skewed, as times are: most near their best, some late.
  std::exponential_distribution<double> late(1.0);
  std::vector<double> times;
  for (int64_t i = 0; i < count; ++i) times.push_back(10 + late(random));
  return times;
}

TEST(MedianEstimate, IsTheMiddleOfWhatWasMeasured) {
  EXPECT_DOUBLE_EQ(estimate_median({3, 1, 2}).median, 2);
  EXPECT_DOUBLE_EQ(estimate_median({4, 1, 2, 3}).median, 2.5);
  EXPECT_EQ(estimate_median({4, 1, 2, 3}).sureness.runs, 4);
}

TEST(MedianEstimate, HasTheIntervalThatTablesOfOrderStatisticsHave) {
  // Of n values the k-th and the k-th last are the ends: 6, 1; 10, 2; 20, 6; 50, 18; 100, 40 (Conover).
  for (const auto& [n, k] : {std::pair{6, 1}, {10, 2}, {20, 6}, {50, 18}, {100, 40}}) {
    std::vector<double> values;
    for (int i = 1; i <= n; ++i) values.push_back(1000 + i);
    const double half_width = ((n + 1 - k) - k) / 2.0;
    const double median = 1000 + (n + 1) / 2.0;
    EXPECT_NEAR(estimate_median(values).sureness.spread_percent, half_width / median * 100, 1e-9) << n;
  }
}

TEST(MedianEstimate, HoldsTheMedianOfAKnownDistributionInItsIntervalNineteenTimesOfTwenty) {
  std::mt19937_64 random(7);
  const double truth = 10 + std::log(2.0);
  int inside = 0;
  constexpr int kTrials = 4000;
  for (int trial = 0; trial < kTrials; ++trial) {
    std::vector<double> values = drawn_times(random, 25);
    const MedianEstimate estimate = estimate_median(values);
    std::sort(values.begin(), values.end());
    // Of 25 values the eighth and the eighth last.
    const double low = values[7], high = values[17];
    EXPECT_NEAR((high - low) / 2 / estimate.median * 100, estimate.sureness.spread_percent, 1e-9);
    inside += truth >= low && truth <= high ? 1 : 0;
  }
  EXPECT_GT(inside, kTrials * 0.945);
}

TEST(MedianEstimate, CountsRunsThatSomethingElseHeldUp) {
  std::vector<double> values(20, 10.0);
  EXPECT_EQ(estimate_median(values).outliers, 0);
  values[3] = 25;
  values[7] = 30;
  EXPECT_EQ(estimate_median(values).outliers, 2);
  EXPECT_DOUBLE_EQ(estimate_median(values).median, 10);
}

TEST(StopRule, StopsWhenTheMedianIsKnownAndNotBefore) {
  std::mt19937_64 random(3);
  const StopRule rule{.spread_percent = 1.5, .least_runs = 7, .time_limit_ms = 1e9};
  std::vector<double> values;
  double clock_ms = 0;
  while (!rule.is_enough(values, clock_ms)) {
    ASSERT_LT(values.size(), 10'000U);
    values.push_back(drawn_times(random, 1).front());
    clock_ms += values.back();
  }
  EXPECT_GE(values.size(), 7U);
  EXPECT_LE(estimate_median(values).sureness.spread_percent, 1.5);
  values.pop_back();
  EXPECT_FALSE(rule.is_enough(values, clock_ms)) << "one run less was enough";
}

TEST(StopRule, TakesWhatIsThereWhenTimeIsUp) {
  const StopRule rule{.spread_percent = 0.001, .least_runs = 7, .time_limit_ms = 100};
  EXPECT_FALSE(rule.is_enough({}, 200));
  EXPECT_FALSE(rule.is_enough({50, 40}, 90));
  EXPECT_TRUE(rule.is_enough({50, 40, 60}, 150));
}

}  // namespace
}  // namespace weft
