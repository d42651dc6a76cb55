#include <algorithm>
#include <random>

#include <gtest/gtest.h>

#include "tests/support/draws.h"
#include "tests/support/source_tree.h"
#include "weft/exchange/target_limits.h"
#include "weft/plan/plan_json.h"
#include "weft/search/choose_plan.h"
#include "weft/search/drawn_objective.h"
#include "weft/search/drawn_race.h"
#include "weft/search/enumerate.h"
#include "weft/search/explain_plan.h"
#include "weft/search/frame_bounds.h"
#include "weft/search/open_frame.h"
#include "weft/search/plan_advice.h"
#include "weft/spec/scenario.h"

namespace weft::drawn_search_test {
namespace {

const Scenarios kScenarios(source_tree().string() + "/scenarios");

/// A tiny model whose samples have few images, and now and then very many.
PlanProblem heavy_tailed(int64_t devices, int64_t samples) {
  PlanProblem problem{.model = *kScenarios.model("tiny-vl"),
                      .cluster = *kScenarios.cluster("local_cpu"),
                      .workload = *kScenarios.workload("tiny_vl"),
                      .space = {}};
  problem.cluster.devices_per_node = devices;
  problem.cluster.device.memory_gib = 64;
  problem.workload.global_batch_samples = samples;
  problem.workload.images = {Distribution::weighted({{0, 0.5}, {1, 0.4}, {12, 0.1}}),
                             Distribution::weighted({{64, 0.6}, {256, 0.3}, {1024, 0.1}})};
  problem.space.cp = {.values = {1}};
  problem.space.schedules = {ScheduleName::k1f1b};
  return problem;
}

PlanSearchResult search(const PlanProblem& problem, const PlanSearchOptions& options) {
  return *search_plans(problem.model, problem.cluster, problem.workload, problem.space, options);
}

double drawn_ms(Plan plan, int64_t batches) {
  return simulate_plan(plan, {.batches = batches})->step_time_ms;
}

constexpr double kLong_s = 1000;

TEST(DrawnSearch, FindsWhatTryingEveryPlanAndBalanceFinds) {
  for (const int64_t devices : {2, 4}) {
    PlanProblem problem = heavy_tailed(devices, 16);
    // One stage, and memory for everything: a candidate is a plan.
    problem.space.pp = {.values = {1}};
    constexpr int64_t kBatches = 4;
    Plan plan = plan_without_settings(problem.model, problem.cluster, problem.workload);
    double least_ms = kInfinity;
    int64_t num_plans = 0;
    for (const Candidate& frame : enumerate_frames(plan, problem.space)) {
      for (const Candidate& candidate : enumerate_candidates(frame, choices_of(frame, plan, problem.space))) {
        fill_plan(candidate, plan);
        for (const Balance balance : kBalancesByPlainness) {
          plan.balance = balance;
          if (!playable_schedule(plan)) continue;  // encoders in bubbles have no order yet
          least_ms = std::min(least_ms, drawn_ms(plan, kBatches));
          ++num_plans;
        }
      }
    }
    ASSERT_GT(num_plans, 100);
    const PlanSearchResult result = search(problem, {.time_limit_s = kLong_s, .batches = kBatches});
    ASSERT_FALSE(result.best.empty());
    EXPECT_TRUE(result.is_optimal);
    EXPECT_EQ(result.batches, kBatches);
    EXPECT_LE(result.best.front().step_time_ms, least_ms * (1 + 1e-4)) << devices << " devices, " << num_plans;
    EXPECT_EQ(drawn_ms(result.best.front().plan, kBatches), result.best.front().step_time_ms);
  }
}

TEST(DrawnSearch, BoundsChangeNothing) {
  PlanProblem problem = heavy_tailed(4, 16);
  problem.space.mbs = {.values = {1, 2}};
  problem.space.zero = {.values = {0, 1}, .at_least = 0};
  const PlanSearchOptions with{.time_limit_s = kLong_s, .batches = 3};
  PlanSearchOptions without = with;
  without.bounds = {.work = false, .schedule = false, .placement = false};
  const PlanSearchResult all = search(problem, without), some = search(problem, with);
  EXPECT_LT(some.counts.evaluated, all.counts.evaluated);
  EXPECT_LE(some.best.front().step_time_ms, all.best.front().step_time_ms * (1 + 1e-4));
}

TEST(DrawnSearch, WhatIsFastestForTheMeanBatchLosesOnHeavyTails) {
  const PlanProblem problem = heavy_tailed(8, 64);
  const PlanSearchResult mean = search(problem, {.time_limit_s = kLong_s});
  const PlanSearchResult drawn = search(problem, {.time_limit_s = kLong_s, .batches = kEnoughBatches});
  ASSERT_GT(drawn.batches, 0);
  const double of_mean_ms = drawn_ms(mean.best.front().plan, drawn.batches);
  const FoundPlan& best = drawn.best.front();
  EXPECT_LT(mean.best.front().step_time_ms, best.step_time_ms) << "which the mean batch does not show";
  EXPECT_GT(of_mean_ms, 1.03 * best.step_time_ms) << best.candidate.text(best.plan);
  EXPECT_NE(best.plan.balance, Balance::kNone);
  EXPECT_EQ(std::ssize(best.steps_ms), drawn.batches);
}

TEST(DrawnSearch, TheSameInputsGiveTheSamePlan) {
  const PlanProblem problem = heavy_tailed(4, 32);
  const PlanSearchOptions options{.time_limit_s = kLong_s, .batches = kEnoughBatches};
  const PlanSearchResult a = search(problem, options), b = search(problem, options);
  EXPECT_EQ(plan_to_text(a.best.front().plan), plan_to_text(b.best.front().plan));
  EXPECT_EQ(a.best.front().steps_ms, b.best.front().steps_ms);
  EXPECT_EQ(a.batches, b.batches);
}

TEST(DrawnSearch, ASpaceMayLeaveReassigningOut) {
  PlanProblem problem = heavy_tailed(4, 32);
  problem.space.balances = {Balance::kNone};
  const PlanSearchOptions options{.time_limit_s = kLong_s, .batches = 4};
  const FoundPlan none = search(problem, options).best.front();
  EXPECT_EQ(none.plan.balance, Balance::kNone);
  problem.space = heavy_tailed(4, 32).space;
  EXPECT_LT(search(problem, options).best.front().step_time_ms, none.step_time_ms);
}

TEST(DrawnSearch, SamplesThatAreAllTheSameAreNotDrawn) {
  PlanProblem problem = heavy_tailed(2, 8);
  problem.workload.tokens = Distribution::constant(64);
  problem.workload.images = {Distribution::constant(1), Distribution::constant(64)};
  const PlanSearchResult result = search(problem, {.time_limit_s = kLong_s, .batches = kEnoughBatches});
  EXPECT_EQ(result.batches, 0);
  EXPECT_TRUE(result.is_optimal);
  EXPECT_EQ(result.best.front().plan.balance, Balance::kNone) << "ties go to the plainest";
}

TEST(DrawnSearch, StepsOfVeryManySamplesAreNotDrawn) {
  for (const int64_t batches : {kEnoughBatches, int64_t{4}}) {
    const PlanSearchResult result = search(heavy_tailed(8, 2 * kMostDrawnSamples), {.batches = batches});
    EXPECT_EQ(result.batches, 0);
    EXPECT_EQ(result.chosen->plan.batches, 0);
  }
}

/// A plan with its mean step on drawn batches.
struct Tried {
  Simplicity simplicity;
  double ms = 0;
};

/// Every plan and balance of a space in which a candidate is a plan.
std::vector<Tried> try_all(const PlanProblem& problem, int64_t batches) {
  std::vector<Tried> tried;
  Plan plan = plan_without_settings(problem.model, problem.cluster, problem.workload);
  for (const Candidate& frame : enumerate_frames(plan, problem.space)) {
    for (Candidate candidate : enumerate_candidates(frame, choices_of(frame, plan, problem.space))) {
      for (const Balance balance : kBalancesByPlainness) {
        candidate.balance = balance;
        fill_plan(candidate, plan);
        Simplicity simplicity = simplicity_of(candidate, 1);
        simplicity.lacks_export = expressed_by(plan).empty();
        tried.push_back({simplicity, drawn_ms(plan, batches)});
      }
    }
  }
  return tried;
}

/// The simplest of what is below a limit.
Simplicity simplest_below(const std::vector<Tried>& tried, double limit_ms) {
  Simplicity simplest{.kinds = INT64_MAX};
  for (const Tried& one : tried) {
    if (one.ms <= limit_ms) simplest = std::min(simplest, one.simplicity);
  }
  return simplest;
}

/// One stage, encoders that run before it, and memory for everything.
PlanProblem small_heavy_tailed(int64_t devices) {
  PlanProblem problem = heavy_tailed(devices, 16);
  problem.space.pp = {.values = {1}};
  EncoderSpace& vision = problem.space.encoders[ModuleKind::kVision];
  vision.allows_fill = vision.allows_disjoint = vision.allows_partial = false;
  return problem;
}

/// Ways of reassigning that differ by less are not told apart.
constexpr double kHair = 2e-4;

TEST(DrawnSearch, ChoosesTheSimplestWithinTheMarginOfTheBestMeanStep) {
  if (kIsSanitized) GTEST_SKIP() << "left to the optimised build: a search of real size";
  constexpr int64_t kBatches = 4;
  int num_simpler = 0, num_in_order = 0;
  for (const int64_t devices : {2, 4}) {
    const PlanProblem problem = small_heavy_tailed(devices);
    const std::vector<Tried> tried = try_all(problem, kBatches);
    ASSERT_GT(tried.size(), 100u);
    double least_ms = kInfinity;
    for (const Tried& one : tried) least_ms = std::min(least_ms, one.ms);
    for (const double within : {0.0, 0.02, 0.1, 0.3, 1.0}) {
      const PlanSearchResult result = search(problem, {.time_limit_s = kLong_s, .within = within, .batches = kBatches});
      const FoundPlan &fastest = result.best.front(), &chosen = *result.chosen;
      const std::string where = std::to_string(within) + ": " + chosen.candidate.text(chosen.plan);
      EXPECT_TRUE(result.is_optimal) << where;
      EXPECT_NEAR(fastest.step_time_ms, least_ms, kHair * least_ms) << where;
      EXPECT_EQ(chosen.plan.balance, chosen.candidate.balance);
      EXPECT_EQ(drawn_ms(chosen.plan, kBatches), chosen.step_time_ms) << where;
      EXPECT_LE(chosen.step_time_ms, fastest.step_time_ms * (1 + within) * (1 + 1e-7)) << where;
      EXPECT_LE(chosen.simplicity, simplest_below(tried, least_ms * (1 + within) * (1 - kHair))) << where;
      EXPECT_GE(chosen.simplicity, simplest_below(tried, least_ms * (1 + within) * (1 + kHair))) << where;
      for (const Tried& one : tried) {
        if (one.simplicity == chosen.simplicity) {
          EXPECT_LE(chosen.step_time_ms, one.ms * (1 + kHair)) << where;
        }
      }
      num_simpler += chosen.simplicity < fastest.simplicity ? 1 : 0;
      num_in_order += chosen.plan.balance == Balance::kNone && fastest.plan.balance != Balance::kNone ? 1 : 0;
    }
  }
  EXPECT_GT(num_simpler, 2) << "a margin that never chooses anything else tests nothing";
  EXPECT_GT(num_in_order, 0) << "what does not reassign samples is simpler";
}

TEST(DrawnSearch, NoBatchIsPricedBehindTheDeadline) {
  const PlanProblem problem = small_heavy_tailed(4);
  Plan plan = plan_without_settings(problem.model, problem.cluster, problem.workload);
  DrawnSamples samples(plan);
  DrawnObjective objective(*PlanSimulator::create(plan), samples, problem.space.balances, 4);
  const Candidate frame = enumerate_frames(plan, problem.space).front();
  fill_plan(enumerate_candidates(frame, choices_of(frame, plan, problem.space)).front(), plan);
  DrawnLimits limits{.in_order_ms = kInfinity, .reassigned_ms = kInfinity};
  const DrawnPrices whole = objective.price(plan, limits);
  ASSERT_FALSE(whole.found.empty());
  EXPECT_FALSE(whole.is_cut_short);
  limits.deadline = Deadline(0.0);
  const DrawnPrices cut = objective.price(plan, limits);
  EXPECT_TRUE(cut.is_cut_short);
  EXPECT_TRUE(cut.found.empty());
  // A race that has no time for another round leaves all plans on the batches that they have in common.
  std::vector<FoundPlan> best(2, FoundPlan{.plan = plan, .steps_ms = whole.found.front().steps_ms});
  EXPECT_EQ(race(objective, {.keep = 2, .within = 0, .deadline = Deadline(0.0)}, best), 4);
  for (const FoundPlan& found : best) EXPECT_EQ(found.steps_ms, whole.found.front().steps_ms);
}

TEST(DrawnSearch, MoreBatchesKeepWhatIsSimplerInTheRace) {
  if (kIsSanitized) GTEST_SKIP() << "left to the optimised build: a search of real size";
  const PlanProblem problem = small_heavy_tailed(4);
  Plan plan = plan_without_settings(problem.model, problem.cluster, problem.workload);
  DrawnSamples samples(plan);
  DrawnObjective objective(*PlanSimulator::create(plan), samples, problem.space.balances, 4);
  std::vector<FoundPlan> all;
  Plan filled = plan;
  for (const Candidate& frame : enumerate_frames(plan, problem.space)) {
    const std::vector<Candidate> candidates = enumerate_candidates(frame, choices_of(frame, plan, problem.space));
    for (size_t i = 0; i < candidates.size(); i += 7) {
      fill_plan(candidates[i], filled);
      for (DrawnPrice& price : objective.price(filled, {.in_order_ms = kInfinity, .reassigned_ms = kInfinity}).found) {
        FoundPlan& found = all.emplace_back(FoundPlan{.candidate = candidates[i], .plan = filled});
        found.candidate.balance = found.plan.balance = price.balance;
        found.simplicity = simplicity_of(found.candidate, 1);
        found.steps_ms = std::move(price.steps_ms);
      }
    }
  }
  std::vector<double> times_ms;
  for (const double within : {0.0, 0.02, 0.1, 0.3}) {
    std::vector<FoundPlan> best = all;
    const int64_t batches = race(objective, {.keep = 1, .within = within, .deadline = {}}, best);
    EXPECT_GT(batches, 4);
    EXPECT_LT(best.size(), all.size()) << "some are surely beyond the margin";
    const FoundPlan& chosen = best[choose_plan(best, within)];
    // All of them on the batches of the last race.
    std::vector<Tried> tried;
    double least_ms = kInfinity;
    for (FoundPlan& found : all) {
      objective.extend(found.plan, batches, found.steps_ms);
      const std::vector<double> steps(found.steps_ms.begin(), found.steps_ms.begin() + batches);
      tried.push_back({found.simplicity, spread_of(steps).mean_ms});
      least_ms = std::min(least_ms, tried.back().ms);
    }
    for (FoundPlan& found : all) found.steps_ms.resize(4);
    EXPECT_LE(best.front().step_time_ms, least_ms * (1 + kLittleDifference)) << within;
    EXPECT_EQ(chosen.simplicity, simplest_below(tried, best.front().step_time_ms * (1 + within) * (1 + 1e-9)))
        << within;
    times_ms.push_back(chosen.step_time_ms);
  }
  EXPECT_GT(times_ms.back(), times_ms.front() * 1.02) << "a margin that never chooses anything else tests nothing";
}

TEST(DrawnSearch, ExplanationsComparePlansAndBalancesOnTheSameBatches) {
  if (kIsSanitized) GTEST_SKIP() << "left to the optimised build: a search of real size";
  const PlanProblem problem = small_heavy_tailed(2);
  const PlanSearchOptions options{.time_limit_s = kLong_s, .within = 0.02, .batches = kEnoughBatches};
  PlanSearchResult result = search(problem, options);
  const Explanation explanation = *explain_plan(problem, result, options);
  const FoundPlan& chosen = *result.chosen;
  bool has_other_balance = false;
  for (const Alternative& alternative : explanation.alternatives) {
    if (!alternative.best) continue;
    EXPECT_EQ(alternative.best->plan.batches, chosen.plan.batches);
    double more_ms = 0;
    for (const PartDifference& part : alternative.parts) more_ms += part.more_ms;
    const double step_ms = alternative.best->step_time_ms;
    EXPECT_NEAR(more_ms, step_ms - chosen.step_time_ms, 1e-6 * step_ms) << alternative.names.front();
    EXPECT_EQ(drawn_ms(alternative.best->plan, result.batches), step_ms);
    // What is simpler than the choice is beyond the margin.
    if (alternative.best->simplicity < chosen.simplicity) {
      EXPECT_GT(step_ms, result.best.front().step_time_ms * 1.02 * (1 - kHair)) << alternative.names.front();
    }
    const std::string other = chosen.plan.balance == Balance::kNone ? "a balance other than none" : "balance none";
    has_other_balance |=
        std::find(alternative.names.begin(), alternative.names.end(), other) != alternative.names.end();
  }
  EXPECT_TRUE(has_other_balance);
}

/// Random problems, and plans of their spaces: bounds of frames and combinations against drawn steps.
TEST(DrawnSearch, NoBoundOfDrawnLoadsIsAboveADrawnStep) {
  // Which rank is the busiest is told by what its samples cost, in a straight line.
  constexpr double kChoice = 1e-3;
  std::mt19937_64 random(20'261'116);
  int num_compared = 0;
  for (int trial = 0; trial < draws(12); ++trial) {
    PlanProblem problem = heavy_tailed(int64_t{1} << (1 + random() % 3), 16 << random() % 2);
    const auto weight = [&] { return 0.05 + static_cast<double>(random() % 100) / 100; };
    problem.workload.images.pieces_per_sample = Distribution::weighted(
        {{0, weight()}, {1, weight()}, {static_cast<double>(2 + random() % 20), 0.2 * weight()}});
    if (random() % 2 == 0) problem.space.balances = {Balance::kNone};
    constexpr int64_t kBatches = 4;
    const Plan plan = plan_without_settings(problem.model, problem.cluster, problem.workload);
    DrawnSamples samples(plan);
    Workbench bench(problem.space, plan, *PlanSimulator::create(plan));
    const bool may_reassign = problem.space.balances.size() > 1;
    bench.assume(std::make_unique<DrawnLoads>(plan, samples, kBatches, may_reassign));
    FrameBounds bounds(bench);
    const std::vector<Candidate> frames = enumerate_frames(plan, problem.space);
    for (int pick = 0; pick < 12; ++pick) {
      const Candidate& degrees = frames[random() % frames.size()];
      const double frame_ms = bounds.work_ms(degrees);
      const OpenFrame frame = open_frame(bench, degrees);
      if (frame.combinations.empty()) continue;
      const Combination& combination = frame.combinations[random() % frame.combinations.size()];
      Candidate c = frame.candidate_of(combination);
      frame.choices.zeros[random() % frame.choices.zeros.size()].apply(c);
      frame.choices.schedules[random() % frame.choices.schedules.size()].apply(c);
      Plan filled = plan;
      fill_plan(c, filled);
      if (!playable_schedule(filled)) continue;
      for (const Balance balance : problem.space.balances) {
        filled.balance = balance;
        const double ms = drawn_ms(filled, kBatches);
        EXPECT_LE(frame_ms, ms * (1 + kChoice)) << c.text(filled);
        EXPECT_LE(combination.least_ms, ms * (1 + kChoice)) << c.text(filled);
        ++num_compared;
      }
    }
  }
  EXPECT_GT(num_compared, 100);
}

}  // namespace
}  // namespace weft::drawn_search_test
