#include "weft/search/best_plans.h"

#include <algorithm>
#include <map>
#include <random>

#include <gtest/gtest.h>

namespace weft::best_plans_test {
namespace {

FoundPlan found(int64_t tp, double step_time_ms) {
  return {.candidate = {.tp = tp}, .plan = {}, .step_time_ms = step_time_ms, .bound_ms = step_time_ms};
}

std::vector<std::pair<int64_t, double>> taken(BestPlans best) {
  std::vector<std::pair<int64_t, double>> plans;
  for (const FoundPlan& plan : best.take()) plans.emplace_back(plan.candidate.tp, plan.step_time_ms);
  return plans;
}

TEST(BestPlans, KeepsTheFastestOfEachCandidate) {
  // Against a list of everything that was offered.
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    const size_t most = 1 + random() % 4;
    BestPlans best(most);
    std::map<int64_t, double> fastest;
    for (int i = 0; i < 12; ++i) {
      const auto tp = static_cast<int64_t>(random() % 6);
      const auto ms = static_cast<double>(1 + random() % 1000) + 0.001 * i;
      best.offer(found(tp, ms));
      const auto place = fastest.emplace(tp, ms).first;
      place->second = std::min(place->second, ms);
    }
    std::vector<std::pair<double, int64_t>> expected;
    for (const auto& [tp, ms] : fastest) expected.emplace_back(ms, tp);
    std::sort(expected.begin(), expected.end());
    expected.resize(std::min(expected.size(), most));
    const auto plans = taken(best);
    ASSERT_EQ(plans.size(), expected.size());
    for (size_t i = 0; i < plans.size(); ++i) EXPECT_EQ(plans[i], std::pair(expected[i].second, expected[i].first));
  }
}

TEST(BestPlans, OnlyWhatIsFasterThanTheSlowestOfAllThatAreAskedForIsOfInterest) {
  BestPlans best(2);
  EXPECT_EQ(best.fastest(), nullptr);
  best.offer(found(1, 30));
  EXPECT_EQ(best.limit_ms(), kInfinity);
  best.offer(found(2, 20));
  EXPECT_NEAR(best.limit_ms(), 30, 1e-6);
  EXPECT_LT(best.limit_ms(), 30);
  best.offer(found(3, 10));
  EXPECT_NEAR(best.limit_ms(), 20, 1e-6);
  EXPECT_EQ(best.fastest()->candidate.tp, 3);
}

TEST(BestPlans, WhatProbesFoundIsALimitAndMustBeFoundAgain) {
  BestPlans best(1);
  best.offer(found(1, 20));
  best.end_probing();
  EXPECT_GT(best.limit_ms(), 20);
  EXPECT_NEAR(best.limit_ms(), 20, 1e-6);
  EXPECT_EQ(best.fastest()->candidate.tp, 1);
  best.offer(found(2, 21));
  BestPlans again = best;
  EXPECT_TRUE(best.restore_missing());
  EXPECT_EQ(taken(best), (std::vector<std::pair<int64_t, double>>{{1, 20}}));
  again.offer(found(1, 20));
  EXPECT_FALSE(again.restore_missing());
  EXPECT_EQ(taken(again), (std::vector<std::pair<int64_t, double>>{{1, 20}}));
}

TEST(BestPlans, AProbeThatWasOutdoneIsNotMissed) {
  BestPlans best(1);
  best.offer(found(1, 20));
  best.end_probing();
  best.offer(found(2, 19));
  EXPECT_FALSE(best.restore_missing());
  EXPECT_EQ(taken(best), (std::vector<std::pair<int64_t, double>>{{2, 19}}));
}

}  // namespace
}  // namespace weft::best_plans_test
