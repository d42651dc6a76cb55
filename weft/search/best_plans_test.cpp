#include "weft/search/best_plans.h"

#include <algorithm>
#include <map>
#include <random>

#include <gtest/gtest.h>

#include "weft/search/choose_plan.h"

namespace weft::best_plans_test {
namespace {

FoundPlan found(int64_t tp, double step_time_ms) {
  return {.candidate = {{.tp = tp}}, .plan = {}, .step_time_ms = step_time_ms, .bound_ms = step_time_ms};
}

FoundPlan found(int64_t tp, double step_time_ms, int64_t kinds) {
  FoundPlan plan = found(tp, step_time_ms);
  plan.simplicity.kinds = kinds;
  return plan;
}

constexpr Simplicity kSimple{.kinds = 0}, kOdd{.kinds = 9};

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
    BestPlans best(most, 0);
    std::map<int64_t, double> fastest;
    for (int i = 0; i < 12; ++i) {
      const auto tp = static_cast<int64_t>(random() % 6);
      const auto ms = static_cast<double>(1 + random() % 1000) + 0.01 * i;
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
  BestPlans best(2, 0);
  EXPECT_EQ(best.fastest(), nullptr);
  best.offer(found(1, 30));
  EXPECT_EQ(best.limit_ms(kOdd), kInfinity);
  best.offer(found(2, 20));
  EXPECT_NEAR(best.limit_ms(kOdd), 30, 1e-6);
  EXPECT_LT(best.limit_ms(kOdd), 30);
  best.offer(found(3, 10));
  EXPECT_NEAR(best.limit_ms(kOdd), 20, 1e-6);
  EXPECT_EQ(best.fastest()->candidate.tp, 3);
}

TEST(BestPlans, OfOneCandidateWhatReassignsIsFastAndWhatDoesNotIsSimple) {
  BestPlans best(2, 0.1);
  FoundPlan reassigned = found(1, 100, 1);
  reassigned.candidate.balance = Balance::kBoth;
  best.offer(found(1, 105, 0));
  best.offer(reassigned);
  best.offer(found(2, 108, 1));
  // Two of different settings are the fastest, and the simple one is kept beside them.
  EXPECT_EQ(taken(best), (std::vector<std::pair<int64_t, double>>{{1, 100}, {1, 105}, {2, 108}}));
}

TEST(BestPlans, WhatProbesFoundIsALimitAndMustBeFoundAgain) {
  BestPlans best(1, 0);
  best.offer(found(1, 20));
  best.end_probing();
  EXPECT_GT(best.limit_ms(kOdd), 20);
  EXPECT_NEAR(best.limit_ms(kOdd), 20, 1e-6);
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
  BestPlans best(1, 0);
  best.offer(found(1, 20));
  best.end_probing();
  best.offer(found(2, 19));
  EXPECT_FALSE(best.restore_missing());
  EXPECT_EQ(taken(best), (std::vector<std::pair<int64_t, double>>{{2, 19}}));
}

TEST(BestPlans, KeepsTheSimplestWithinTheMargin) {
  // Against a list of everything that was offered: what is kept has the right answer for any final fastest.
  std::mt19937 random(11);
  for (int round = 0; round < 300; ++round) {
    const double within = static_cast<double>(random() % 4) / 10;
    BestPlans best(1, within);
    std::vector<FoundPlan> all;
    for (int64_t i = 0; i < 15; ++i)
      all.push_back(found(i, 100 + static_cast<double>(random() % 40), static_cast<int64_t>(random() % 5)));
    for (size_t i = 0; i < 5; ++i) best.offer(all[i]);
    best.end_probing();
    for (const FoundPlan& plan : all) {
      // A search that prunes by the limit offers no more than this.
      if (plan.step_time_ms < best.limit_ms(plan.simplicity)) best.offer(plan);
    }
    EXPECT_FALSE(best.restore_missing());
    double fastest_ms = kInfinity;
    for (const FoundPlan& plan : all) fastest_ms = std::min(fastest_ms, plan.step_time_ms);
    const FoundPlan* expected = nullptr;
    for (const FoundPlan& plan : all) {
      if (plan.step_time_ms > fastest_ms * (1 + within) * (1 + kTie)) continue;
      const bool is_better = expected == nullptr || plan.simplicity < expected->simplicity ||
                             (plan.simplicity == expected->simplicity && plan.step_time_ms < expected->step_time_ms);
      if (is_better) expected = &plan;
    }
    const std::vector<FoundPlan> plans = best.take();
    const FoundPlan& chosen = plans[choose_plan(plans, within)];
    EXPECT_EQ(chosen.simplicity, expected->simplicity);
    EXPECT_EQ(chosen.step_time_ms, expected->step_time_ms);
    EXPECT_EQ(plans.front().step_time_ms, fastest_ms);
  }
}

TEST(BestPlans, OnlySimplerPlansMayBeSlower) {
  BestPlans best(1, 0.1);
  best.offer(found(1, 100, 3));
  EXPECT_NEAR(best.limit_ms(kOdd), 100, 1e-5);
  EXPECT_NEAR(best.limit_ms(kSimple), 110, 1e-4);
  best.offer(found(2, 105, 1));
  EXPECT_NEAR(best.limit_ms({.kinds = 2}), 105, 1e-4);
  EXPECT_NEAR(best.limit_ms(kSimple), 110, 1e-4);
  // A faster one narrows the margin.
  best.offer(found(3, 95, 3));
  EXPECT_NEAR(best.limit_ms(kSimple), 104.5, 1e-4);
  EXPECT_EQ(taken(best), (std::vector<std::pair<int64_t, double>>{{3, 95}}));
}

TEST(BestPlans, EquallyFastPlansAreOneAndTheSimplestStandsForThem) {
  BestPlans best(2, 0);
  best.offer(found(1, 100, 3));
  best.offer(found(2, 100, 1));
  best.offer(found(3, 100, 2));
  best.offer(found(4, 120, 1));
  const std::vector<FoundPlan> plans = best.take();
  ASSERT_EQ(plans.size(), 2u);
  EXPECT_EQ(plans[0].candidate.tp, 2);
  EXPECT_EQ(plans[0].ties.size(), 2u);
  EXPECT_EQ(plans[1].candidate.tp, 4);
  EXPECT_TRUE(plans[1].ties.empty());
}

}  // namespace
}  // namespace weft::best_plans_test
