#include "weft/search/plan_search.h"

#include <map>
#include <random>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/support/cost/fake_profile.h"
#include "tests/support/draws.h"
#include "tests/support/search/brute_force.h"
#include "tests/support/search/real_problem.h"
#include "tests/support/source_tree.h"
#include "weft/base/units.h"
#include "weft/cost/apply_profile.h"
#include "weft/meaning/check.h"
#include "weft/plan/plan_json.h"
#include "weft/search/enumerate.h"
#include "weft/search/fluid_bound.h"
#include "weft/search/plan_advice.h"
#include "weft/search/space_shapes.h"
#include "weft/simulate/plan_simulator.h"
#include "weft/spec/scenario.h"

namespace weft::plan_search_test {
namespace {

using namespace search_tests;

const Scenarios& kScenarios = test_scenarios();

using Problem = PlanProblem;

/// How a tiny problem is varied.
struct Variant {
  int64_t devices;
  double memory_gib;
  ScheduleName schedule;
  bool is_frozen;
  AttentionKernel attention;
  bool allows_selective;

  std::string text() const {
    return std::to_string(devices) + " devices of " + std::to_string(memory_gib) + " GiB, " + name_of(schedule) +
           (is_frozen ? ", frozen" : "") + (attention == AttentionKernel::kUnfused ? ", unfused" : "");
  }
};

std::vector<Variant> variants() {
  std::vector<Variant> all;
  constexpr std::array kSizes = {0.28, 0.32, 0.36, 0.4, 0.6, 2.0};
  for (const int64_t devices : {1, 2, 4}) {
    for (size_t i = 0; i < 24; ++i) {
      all.push_back({.devices = devices,
                     .memory_gib = kSizes[i % kSizes.size()],
                     .schedule = i / 6 % 2 == 0 ? ScheduleName::k1f1b : ScheduleName::kZbH1,
                     .is_frozen = i / 12 == 1,
                     .attention = i % 4 == 1 ? AttentionKernel::kUnfused : AttentionKernel::kFused,
                     .allows_selective = true});
    }
  }
  // More stages, fewer choices on each: every placement and recomputation is tried.
  for (const int64_t devices : {8, 16}) {
    for (const double gib : {0.25, 0.28, 0.32}) {
      for (const ScheduleName schedule : {ScheduleName::k1f1b, ScheduleName::kGpipe})
        all.push_back({devices, gib, schedule, false, AttentionKernel::kFused, false});
    }
  }
  return all;
}

TEST(PlanSearch, ExpertsAreNotSharedOutWhereMicrobatchesWithMediaGoFurtherBack) {
  const Scenarios scenarios(source_tree() / "scenarios");
  Model model = *scenarios.model("qwen3-vl-30b-a3b");
  for (Module& module : model.modules) module.layers.resize(std::min<size_t>(module.layers.size(), 4));
  Cluster cluster = *scenarios.cluster("dgx_h100");
  cluster.nodes = 1;
  Workload workload = *scenarios.workload("vl_sft");
  workload.global_batch_samples = 16;
  workload.frozen = {ModuleKind::kLlm};
  PlanSpace space;
  space.pp = {.values = {1}};
  const PlanSearchOptions options{.time_limit_s = 100, .batches = 0};
  const Result<PlanSearchResult> result = search_plans(model, cluster, workload, space, options);
  ASSERT_TRUE(result.ok()) << result.error().message();
  for (const FoundPlan& found : result->best) {
    EXPECT_EQ(found.candidate.ep, 1);
    EXPECT_TRUE(check_plan(found.plan).empty());
  }
  Plan shared = result->best.front().plan;
  shared.modules.back().ep = 2;
  if (shared.modules.back().dp * shared.modules.back().cp % 2 == 0) {
    ASSERT_EQ(check_plan(shared).size(), 1U);
    EXPECT_EQ(check_plan(shared).front().field, "modules.llm.ep");
  }
  space.ep = {.values = {2}};
  const Result<PlanSearchResult> refused = search_plans(model, cluster, workload, space, options);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().field, "llm.ep");
}

TEST(PlanSearch, FindsWhatBruteForceFindsAndProvesIt) {
  constexpr size_t kEvery = kIsSanitized ? 14 : 1;
  int num_feasible = 0, num_infeasible = 0;
  const std::vector<Variant> all = variants();
  for (size_t i = 0; i < all.size(); i += kEvery) {
    const Variant& variant = all[i];
    Problem problem = tiny_problem(variant.devices, variant.memory_gib);
    problem.space.schedules = {variant.schedule};
    problem.space.recompute.allows_selective = variant.allows_selective;
    problem.workload.attention = variant.attention;
    if (variant.is_frozen) problem.workload.frozen = {ModuleKind::kVision};
    const double truth = BruteForce(problem).best_ms();
    const PlanSearchResult result = search(problem);
    if (result.best.empty()) {
      EXPECT_EQ(truth, std::numeric_limits<double>::infinity()) << variant.text();
      ++num_infeasible;
      continue;
    }
    ++num_feasible;
    EXPECT_TRUE(result.is_optimal) << variant.text() << ", gap " << result.gap();
    EXPECT_NEAR(result.best.front().step_time_ms, truth, 1e-9 * truth) << variant.text();
  }
  EXPECT_GE(num_feasible, kIsSanitized ? 3 : 50);
  EXPECT_GE(num_infeasible, kIsSanitized ? 0 : 3);
}

// All schedules that are searched where nothing is pinned, each compared with the others.
TEST(PlanSearch, FindsWhatBruteForceFindsAmongAllUsualSchedules) {
  std::map<ScheduleName, int> wins;
  for (const int64_t devices : {2, 4}) {
    for (const double gib : {0.6, 2.0}) {
      for (const int64_t samples : {4, 8, 16}) {
        for (const double bandwidth : {1.0, 20.0}) {
          if (kIsSanitized && (devices == 4 || bandwidth > 1)) continue;
          Problem problem = tiny_problem(devices, gib);
          problem.space.schedules = PlanSpace{}.schedules;
          problem.space.recompute = {.allows_full = false, .allows_selective = false};
          problem.space.pp.at_least = 2;
          problem.cluster.within_node.bandwidth_gb_per_s *= bandwidth;
          problem.workload.global_batch_samples = samples;
          const std::string where =
              fmt::format("{} devices of {} GiB, {} samples, bandwidth {}", devices, gib, samples, bandwidth);
          const double truth = BruteForce(problem).best_ms();
          const PlanSearchResult result = search(problem);
          ASSERT_EQ(result.best.empty(), truth == std::numeric_limits<double>::infinity()) << where;
          if (result.best.empty()) continue;
          EXPECT_TRUE(result.is_optimal) << where << ", gap " << result.gap();
          EXPECT_NEAR(result.best.front().step_time_ms, truth, 1e-9 * truth) << where;
          ++wins[result.best.front().candidate.schedule];
        }
      }
    }
  }
  EXPECT_GE(wins[ScheduleName::kZbV], 1);
  EXPECT_GE(wins.size(), 2u);
}

TEST(PlanSearch, FindsWhatBruteForceFindsWhereBridgesAndTransfersShareCards) {
  int num_held_up = 0;
  for (const double bandwidth : {1.0, 0.1, 0.01}) {
    for (const double gib : {0.25, 0.32, 0.6}) {
      for (const ScheduleName schedule : {ScheduleName::k1f1b, ScheduleName::kZbH1}) {
        if (kIsSanitized && schedule == ScheduleName::kZbH1) continue;
        Problem problem = tiny_problem(1, gib);
        problem.cluster.nodes = 4;
        problem.cluster.between_nodes = problem.cluster.within_node;
        problem.cluster.between_nodes.bandwidth_gb_per_s *= bandwidth;
        problem.space.schedules = {schedule};
        problem.space.pp.values = {2, 4};
        for (auto& [kind, encoder] : problem.space.encoders) encoder.allows_inline = false;
        const std::string where = fmt::format("bandwidth {}, {} GiB", bandwidth, gib);
        const double truth = BruteForce(problem).best_ms();
        const PlanSearchResult result = search(problem);
        ASSERT_EQ(result.best.empty(), truth == std::numeric_limits<double>::infinity()) << where;
        if (result.best.empty()) continue;
        EXPECT_NEAR(result.best.front().step_time_ms, truth, 1e-9 * truth) << where;
        EXPECT_LE(result.bound_ms, truth * (1 + 1e-9)) << where;
        PlanSimulator simulator = *PlanSimulator::create(result.best.front().plan);
        const PlanCosts& costs = simulator.price(result.best.front().plan);
        num_held_up += bridges_hold_up_ms(result.best.front().plan, *costs.modules.back(), costs.bridges) > 0 ? 1 : 0;
      }
    }
  }
  EXPECT_GE(num_held_up, kIsSanitized ? 3 : 6);
}

TEST(PlanSearch, WithoutTimeTheAnswerIsAPlanThatFits) {
  RandomProblems problems(23);
  int num_found = 0, num_short = 0;
  for (int i = 0; i < (kIsSanitized ? 15 : draws(80)); ++i) {
    const Problem problem = problems.next();
    const std::string where = "problem " + std::to_string(i) + ", " + problem.model.name;
    const PlanSearchResult all = search(problem), any = search(problem, {.time_limit_s = 0});
    ASSERT_EQ(any.best.empty(), all.best.empty()) << where;
    if (all.best.empty()) continue;
    ++num_found;
    const FoundPlan& found = any.best.front();
    EXPECT_TRUE(contains(problem, found.candidate)) << where << ": " << found.candidate.text(found.plan);
    EXPECT_TRUE(check_plan(found.plan, PlanUse::kPrice).empty()) << where;
    const MeanStep step = PlanSimulator::create(found.plan)->run_mean(found.plan, *playable_schedule(found.plan));
    for (const MemorySplit& row : step.memory)
      EXPECT_LE(row.total(), problem.cluster.device.memory_gib * kGiB * (1 + 1e-12)) << where;
    EXPECT_NEAR(step.step_time_ms, found.step_time_ms, 1e-9 * step.step_time_ms) << where;
    EXPECT_GE(found.step_time_ms, all.best.front().step_time_ms * (1 - 1e-8)) << where;
    EXPECT_LE(any.bound_ms, all.best.front().step_time_ms * (1 + 1e-8)) << where;
    num_short += found.step_time_ms > 1.01 * all.best.front().step_time_ms ? 1 : 0;
  }
  EXPECT_GE(num_found, kIsSanitized ? 4 : 30);
  EXPECT_GE(num_short, 1) << "with time, better plans are found";
}

// Of 90,000 groups of candidates some dozens fit, and those with the least bounds do not.
TEST(PlanSearch, WithoutTimeAPlanIsFoundWhereFewGroupsFit) {
  const Problem problem = real_problem("qwen3-vl-30b-a3b", "local_cpu", 128, "vl_long", 4096);
  const PlanSearchResult any = search(problem, {.time_limit_s = 0, .memory_margin = 0.08});
  ASSERT_FALSE(any.best.empty());
  EXPECT_GT(any.counts.left, 0);
}

TEST(PlanSearch, WithAProfileFindsWhatBruteForceFindsWithIt) {
  int num_feasible = 0, num_other = 0;
  for (const int64_t devices : {1, 2, 4}) {
    for (const double gib : {0.25, 0.32, 0.6}) {
      for (const ScheduleName schedule : {ScheduleName::k1f1b, ScheduleName::kZbH1}) {
        if (kIsSanitized && (devices == 4 || schedule == ScheduleName::kZbH1)) continue;
        const std::string where = fmt::format("{} devices of {} GiB, {}", devices, gib, name_of(schedule));
        Problem problem = tiny_problem(devices, gib);
        problem.space.schedules = {schedule};
        const Plan plan = plan_without_settings(problem.model, problem.cluster, problem.workload);
        const auto shapes = wanted_shapes(problem.model, problem.cluster, problem.workload, problem.space);
        ASSERT_TRUE(shapes.ok()) << where;
        const Profile profile = FakeDevice().profile_of(plan, *shapes);
        const double truth = BruteForce(problem, &profile).best_ms();
        const PlanSearchResult result = search(problem, {.time_limit_s = 1000, .profile = &profile});
        if (result.best.empty()) {
          EXPECT_EQ(truth, std::numeric_limits<double>::infinity()) << where;
          continue;
        }
        ++num_feasible;
        EXPECT_TRUE(result.is_optimal) << where << ", gap " << result.gap();
        EXPECT_NEAR(result.best.front().step_time_ms, truth, 1e-9 * truth) << where;
        // The same as its simulation, and not what formulas say.
        const PlanReport report = *simulate_plan(result.best.front().plan, {.profile = &profile, .batches = 0});
        EXPECT_NEAR(report.step_time_ms, truth, 1e-9 * truth) << where;
        const PlanReport without = *simulate_plan(result.best.front().plan, {.batches = 0});
        num_other += std::abs(without.step_time_ms / truth - 1) > 0.1 ? 1 : 0;
      }
    }
  }
  EXPECT_GE(num_feasible, kIsSanitized ? 2 : 12);
  EXPECT_EQ(num_other, num_feasible);
}

/// A small cluster of several nodes, on which everything that can be chosen matters.
Problem spread_problem(int64_t nodes, int64_t devices_per_node, double memory_gib) {
  Problem problem = tiny_problem(devices_per_node, memory_gib);
  problem.cluster.nodes = nodes;
  problem.cluster.between_nodes = problem.cluster.within_node;
  problem.cluster.between_nodes.bandwidth_gb_per_s /= 8;
  problem.workload.global_batch_samples = 2 * nodes * devices_per_node;
  problem.space = {};
  problem.space.cp = {.values = {1, 2}};
  problem.space.mbs = {.values = {1, 2}};
  problem.space.schedules = {ScheduleName::k1f1b, ScheduleName::kInterleaved1f1b, ScheduleName::kZbH1,
                             ScheduleName::kGpipe, ScheduleName::kZbV};
  return problem;
}

constexpr SearchBounds kEach[] = {{.work = false}, {.schedule = false}, {.placement = false}};

void expect_bounds_to_change_nothing(const Problem& problem, std::span<const SearchBounds> weaker,
                                     const std::string& where) {
  const PlanSearchResult all = search(problem);
  for (const SearchBounds& bounds : weaker) {
    const PlanSearchResult without = search(problem, {.time_limit_s = 1000, .bounds = bounds});
    const std::string which = where + (bounds.work ? "" : ", without work") +
                              (bounds.schedule ? "" : ", without schedule") +
                              (bounds.placement ? "" : ", without placement");
    EXPECT_EQ(without.counts.considered, all.counts.considered) << which;
    ASSERT_EQ(without.best.size(), all.best.size()) << which;
    if (all.best.empty()) continue;
    const FoundPlan &ours = all.best.front(), &theirs = without.best.front();
    EXPECT_EQ(theirs.step_time_ms, ours.step_time_ms)
        << which << ": " << theirs.candidate.text(theirs.plan) << " instead of " << ours.candidate.text(ours.plan);
  }
}

TEST(PlanSearch, WithoutAnyOneBoundTheAnswerIsTheSame) {
  for (const auto& [nodes, devices, gib] :
       {std::tuple{2, 2, 0.36}, {2, 4, 0.32}, {4, 4, 0.3}, {4, 4, 1.0}, {8, 8, 0.3}, {8, 8, 1.0}}) {
    if (kIsSanitized && nodes * devices > 16) continue;
    const std::string where = std::to_string(nodes) + " x " + std::to_string(devices) + ", " + std::to_string(gib);
    expect_bounds_to_change_nothing(spread_problem(nodes, devices, gib), kEach, where);
  }
}

TEST(PlanSearch, BoundsDropNothingThatCouldWinWithAProfile) {
  for (const auto& [nodes, devices, gib] : {std::tuple{2, 2, 0.36}, {2, 4, 0.32}, {2, 4, 1.0}}) {
    const Problem problem = spread_problem(nodes, devices, gib);
    const Plan plan = plan_without_settings(problem.model, problem.cluster, problem.workload);
    const Profile profile =
        FakeDevice().profile_of(plan, *wanted_shapes(problem.model, problem.cluster, problem.workload, problem.space));
    const PlanSearchResult all = search(problem, {.time_limit_s = 1000, .profile = &profile});
    ASSERT_FALSE(all.best.empty());
    for (const SearchBounds& bounds : kEach) {
      const PlanSearchResult without = search(problem, {.time_limit_s = 1000, .profile = &profile, .bounds = bounds});
      EXPECT_NEAR(without.best.front().step_time_ms, all.best.front().step_time_ms,
                  1e-9 * all.best.front().step_time_ms);
    }
  }
}

TEST(PlanSearch, WithoutAnyBoundsTheAnswerIsTheSameForEveryKindOfEncoder) {
  const SearchBounds none[] = {{.work = false, .schedule = false, .placement = false}};
  for (const auto& [nodes, devices, gib] : {std::tuple{1, 4, 0.4}, {2, 2, 1.0}, {2, 4, 0.36}}) {
    if (kIsSanitized && nodes * devices > 4) continue;
    for (const char* kind : {"inline", "before", "fill", "disjoint", "partial"}) {
      for (const bool is_frozen : {false, true}) {
        Problem problem = spread_problem(nodes, devices, gib);
        const std::string name = kind;
        EncoderSpace& vision = problem.space.encoders[ModuleKind::kVision];
        vision.allows_inline = name == "inline";
        vision.allows_colocated = name == "before" || name == "fill";
        vision.allows_before = name != "fill";
        vision.allows_fill = name == "fill";
        vision.allows_disjoint = name == "disjoint";
        vision.allows_partial = name == "partial";
        if (is_frozen) problem.space.frozen = {ModuleKind::kVision};
        const std::string where =
            std::to_string(nodes) + " x " + std::to_string(devices) + ", " + kind + (is_frozen ? ", frozen" : "");
        expect_bounds_to_change_nothing(problem, none, where);
      }
    }
  }
}

TEST(PlanSearch, BoundsDropNothingThatCouldWinInProblemsAtRandom) {
  RandomProblems problems(11);
  int num_compared = 0;
  const int num_problems = kIsSanitized ? 40 : draws(160);
  for (int i = 0; i < num_problems; ++i) {
    const Problem problem = problems.next();
    expect_nothing_to_be_dropped(problem, "problem " + std::to_string(i) + ", " + problem.model.name, num_compared);
  }
  EXPECT_GE(num_compared, num_problems / 2);
}

TEST(PlanSearch, BoundsDropNothingThatCouldWinAmongAllUsualSchedules) {
  RandomProblems problems(13);
  int num_compared = 0, num_v = 0;
  for (int i = 0; i < (kIsSanitized ? 30 : draws(100)); ++i) {
    Problem problem = problems.next();
    problem.space.schedules = PlanSpace{}.schedules;
    problem.space.pp.at_least = 2;
    const std::string where = "problem " + std::to_string(i) + ", " + problem.model.name;
    expect_nothing_to_be_dropped(problem, where, num_compared);
    const PlanSearchResult result = search(problem);
    num_v += !result.best.empty() && result.best.front().candidate.schedule == ScheduleName::kZbV ? 1 : 0;
  }
  EXPECT_GE(num_compared, kIsSanitized ? 3 : 30);
  EXPECT_GE(num_v, kIsSanitized ? 0 : 3);
}

// The plans of a part of a space are the space's own.
TEST(PlanSearch, TheUsualSpaceIsNoSlowerThanOneWithEverySchedule) {
  if (kIsSanitized) GTEST_SKIP() << "left to the optimised build: a search of real size";
  Problem problem = real_problem("llama3-70b", "dgx_h100", 8, "text_4k", 64);
  const PlanSearchResult usual = search(problem, {.time_limit_s = 1000, .memory_margin = 0.08});
  problem.space.schedules = {ScheduleName::kGpipe, ScheduleName::k1f1b, ScheduleName::kInterleaved1f1b,
                             ScheduleName::kZbH1, ScheduleName::kZbV};
  const PlanSearchResult every = search(problem, {.time_limit_s = 1000, .memory_margin = 0.08});
  EXPECT_TRUE(usual.is_optimal);
  EXPECT_NEAR(usual.best.front().step_time_ms, every.best.front().step_time_ms, 1e-9 * every.bound_ms);
  EXPECT_EQ(usual.best.front().candidate.schedule, ScheduleName::kZbV);
}

TEST(PlanSearch, BoundsDropNothingThatCouldWinWhereEncodersHaveSettingsOfTheirOwn) {
  RandomProblems problems(12, /*has_own_settings=*/true);
  int num_compared = 0;
  const int num_problems = kIsSanitized ? 30 : draws(100);
  for (int i = 0; i < num_problems; ++i) {
    const Problem problem = problems.next();
    expect_nothing_to_be_dropped(problem, "problem " + std::to_string(i) + ", " + problem.model.name, num_compared);
  }
  EXPECT_GE(num_compared, num_problems / 4);
}

/// The least memory of a device with which any plan of the space fits.
double least_memory_gib(Problem problem) {
  const SearchBounds none{.work = false, .schedule = false, .placement = false};
  double low = 0, high = 1000;
  while (high - low > 1e-3 * high) {
    problem.cluster.device.memory_gib = (low + high) / 2;
    const bool fits = !search(problem, {.time_limit_s = 1000, .first_only = true, .bounds = none}).best.empty();
    (fits ? high : low) = problem.cluster.device.memory_gib;
  }
  return high;
}

// The head lies on the first rank then, and a rank's second chunk holds fewer microbatches than one chunk would.
TEST(PlanSearch, BoundsDropNothingThatCouldWinWhereChunksComeBackAndMemoryIsShort) {
  int num_compared = 0;
  for (const size_t layers : {8, 9, 11}) {
    for (const bool recomputes : {false, true}) {
      Problem problem{.model = *kScenarios.model("llama3-8b"),
                      .cluster = *kScenarios.cluster("dgx_h100"),
                      .workload = *kScenarios.workload("text_4k"),
                      .space = {}};
      problem.model.modules.back().layers.resize(layers);
      problem.cluster.nodes = 1;
      problem.cluster.devices_per_node = 4;
      problem.workload.global_batch_samples = 16;
      problem.workload.tokens = Distribution::constant(32768);
      problem.space.schedules = {ScheduleName::kZbV};
      problem.space.pp = {.values = {4}};
      problem.space.mbs = {.values = {1}};
      problem.space.recompute = {.allows_full = recomputes, .allows_selective = false};
      const double least = least_memory_gib(problem);
      for (const double factor : {1.002, 1.05, 1.2}) {
        problem.cluster.device.memory_gib = factor * least;
        const std::string where = std::to_string(layers) + " layers, " + std::to_string(factor * least) + " GiB";
        expect_nothing_to_be_dropped(problem, where, num_compared);
      }
    }
  }
  EXPECT_EQ(num_compared, 18);
}

TEST(PlanSearch, WhatItFindsIsLegalFitsAndSimulatesToTheSameTime) {
  for (const auto& [model, cluster, workload] : {std::tuple{"qwen2-vl-7b", "dgx_h100", "vl_sft"},
                                                 {"llama3-8b", "dgx_a100_80g", "text_4k"},
                                                 {"qwen2.5-omni-7b", "hgx_h200", "omni_short"}}) {
    PlanSpace space;
    space.schedules = {ScheduleName::k1f1b, ScheduleName::kZbH1};
    space.cp = {.values = {1}};
    Workload load = *kScenarios.workload(workload);
    load.global_batch_samples = 64;
    const Result<PlanSearchResult> result = search_plans(*kScenarios.model(model), *kScenarios.cluster(cluster), load,
                                                         space, {.time_limit_s = 5, .top = 3});
    ASSERT_TRUE(result.ok());
    ASSERT_FALSE(result->best.empty()) << model;
    for (const FoundPlan& found : result->best) {
      EXPECT_TRUE(check_plan(found.plan, PlanUse::kPrice).empty())
          << check_plan(found.plan, PlanUse::kPrice).front().message;
      const PlanReport report = *simulate_plan(found.plan);
      EXPECT_EQ(report.step_time_ms, found.step_time_ms);
      EXPECT_TRUE(report.fits());
      EXPECT_LE(found.bound_ms, found.step_time_ms * (1 + 1e-9));
    }
    const SearchCounts& c = result->counts;
    EXPECT_EQ(c.considered,
              c.slower_by_work + c.slower_by_schedule + c.slower_by_placement + c.over_memory + c.evaluated + c.left);
  }
}

TEST(PlanSearch, MoreMemoryNeverHurtsAndSlowerLinksNeverHelp) {
  std::vector<Problem> problems = {tiny_problem(4, 0.4), spread_problem(2, 4, 0.32), spread_problem(4, 4, 0.3),
                                   real_problem("qwen2-vl-7b", "dgx_h100", 1, "vl_sft", 256),
                                   real_problem("llama3-8b", "dgx_a100_80g", 2, "text_4k", 128)};
  problems[3].space.cp = problems[4].space.cp = {.values = {1, 2}};
  for (const Problem& problem : problems) {
    const double base = search(problem).best.front().step_time_ms;
    for (const double factor : {1.1, 2.0}) {
      Problem larger = problem;
      larger.cluster.device.memory_gib *= factor;
      EXPECT_LE(search(larger).best.front().step_time_ms, base * (1 + 1e-9)) << problem.model.name << " " << factor;
    }
    Problem slower = problem;
    slower.cluster.within_node.bandwidth_gb_per_s /= 2;
    slower.cluster.between_nodes.bandwidth_gb_per_s /= 2;
    EXPECT_GE(search(slower).best.front().step_time_ms, base * (1 - 1e-9)) << problem.model.name;
  }
}

TEST(PlanSearch, AModelThatDoesNotFitADeviceIsSplit) {
  if (kIsSanitized) GTEST_SKIP() << "left to the optimised build: a search of real size";
  for (const auto& [nodes, batch] : {std::pair{4, 512}, {8, 1024}, {64, 4096}}) {
    const PlanSearchResult result = search(real_problem("qwen2-vl-72b", "ascend_910b_16", nodes, "vl_sft", batch));
    ASSERT_FALSE(result.best.empty()) << nodes;
    const Candidate& best = result.best.front().candidate;
    EXPECT_GT(best.tp * best.pp, 1) << nodes << " nodes: " << best.text(result.best.front().plan);
  }
}

TEST(PlanSearch, SettingsOfTheirOwnNeverMakeEncodersSlower) {
  if (kIsSanitized) GTEST_SKIP() << "left to the optimised build: a search of real size";
  for (const auto& [model, cluster, workload] :
       {std::tuple{"qwen2-vl-7b", "dgx_h100", "vl_sft"}, {"qwen2.5-omni-7b", "hgx_h200", "omni_short"}}) {
    Problem problem = real_problem(model, cluster, 1, workload, 128);
    problem.space.cp = {.values = {1}};
    const double hetero = search(problem).best.front().step_time_ms;
    for (auto& [kind, encoder] : problem.space.encoders)
      encoder.allows_colocated = encoder.allows_disjoint = encoder.allows_partial = false;
    EXPECT_LE(hetero, search(problem).best.front().step_time_ms * (1 + 1e-9)) << model;
  }
}

/// On 8 devices, short sequences, the usual answer is encoders at dp 8 and the llm at tp 4 x dp 2. With devices as
/// large as these it loses to an llm that is not split at all, and the reason is its tensor-parallel communication.
TEST(PlanSearch, ShortOmniSequencesKeepEncodersAtDp8) {
  if (kIsSanitized) GTEST_SKIP() << "left to the optimised build: a search of real size";
  Problem problem = real_problem("qwen2.5-omni-7b", "hgx_h200", 1, "omni_short", 256);
  const PlanSearchResult free = search(problem);
  ASSERT_TRUE(free.is_optimal);
  for (const ModulePlan& module : free.best.front().plan.modules) EXPECT_EQ(module.dp, 8) << name_of(module.kind);
  problem.space.tp = {.values = {4}};
  problem.space.dp = {.values = {2}};
  const PlanSearchResult split = search(problem);
  const PlanReport best = *simulate_plan(free.best.front().plan), other = *simulate_plan(split.best.front().plan);
  EXPECT_GT(other.step_time_ms, best.step_time_ms);
  EXPECT_GT(other.rows.front().time.tp_ms, 0.5 * (other.step_time_ms - best.step_time_ms));
}

TEST(PlanSearch, PinsAndFrozenModulesAreKept) {
  Problem problem = real_problem("qwen2-vl-7b", "dgx_h100", 1, "vl_sft", 64);
  problem.space.tp = {.values = {2}};
  problem.space.pp = {.values = {2}};
  problem.space.schedules = {ScheduleName::kZbH1};
  problem.space.frozen = {ModuleKind::kVision};
  const PlanSearchResult result = search(problem);
  const Plan& plan = result.best.front().plan;
  EXPECT_EQ(plan.llm().tp, 2);
  EXPECT_EQ(plan.llm().pp, 2);
  EXPECT_EQ(plan.schedule.name, "zb_h1");
  EXPECT_TRUE(plan.workload.is_frozen(ModuleKind::kVision));
  const double frozen_ms = result.best.front().step_time_ms;
  problem.space.frozen = std::vector<ModuleKind>{};
  EXPECT_LT(frozen_ms, search(problem).best.front().step_time_ms);
}

TEST(PlanSearch, TheSameInputsGiveTheSamePlan) {
  const Problem problem = real_problem("qwen2-vl-7b", "dgx_h100", 1, "vl_sft", 256);
  const PlanSearchResult a = search(problem), b = search(problem);
  EXPECT_EQ(plan_to_text(a.best.front().plan), plan_to_text(b.best.front().plan));
  EXPECT_EQ(a.counts.evaluated, b.counts.evaluated);
}

TEST(PlanSearch, DrawnBatchesDecideWhereTheyAreAskedFor) {
  const Problem problem = real_problem("qwen2-vl-7b", "dgx_h100", 1, "vl_sft", 64);
  const PlanSearchResult result = search(problem, {.time_limit_s = 1000, .top = 3, .batches = 4});
  ASSERT_EQ(result.best.size(), 3u);
  EXPECT_EQ(result.batches, 4);
  EXPECT_GE(result.num_drawn, 3);
  for (const FoundPlan& found : result.best) {
    EXPECT_EQ(found.plan.batches, 4);
    EXPECT_EQ(simulate_plan(found.plan)->step_time_ms, found.step_time_ms);
  }
  EXPECT_LE(result.best[0].step_time_ms, result.best[1].step_time_ms);
}

TEST(PlanAdvice, SaysWhatIsMissingAndWhatWouldDo) {
  PlanProblem problem{.model = *kScenarios.model("qwen2-vl-7b"),
                      .cluster = *kScenarios.cluster("dgx_h100"),
                      .workload = *kScenarios.workload("vl_sft"),
                      .space = {}};
  problem.cluster.device.memory_gib = 7;
  const auto message = [&] {
    const PlanSearchResult result =
        *search_plans(problem.model, problem.cluster, problem.workload, problem.space, {.time_limit_s = 20});
    EXPECT_TRUE(result.best.empty());
    return explain_no_plan(problem, result, {.time_limit_s = 20}).message();
  };
  const std::string too_little = message();
  EXPECT_NE(too_little.find("fits in 7 GiB a device"), std::string::npos) << too_little;
  EXPECT_NE(too_little.find("GiB more are needed"), std::string::npos) << too_little;
  // What it says would do, does.
  const size_t at = too_little.find("With ") + 5;
  problem.cluster.device.memory_gib = std::stod(too_little.substr(at));
  EXPECT_FALSE(search_plans(problem.model, problem.cluster, problem.workload, problem.space)->best.empty())
      << too_little;

  problem.cluster.device.memory_gib = 80;
  problem.space.tp = {.values = {3}};
  EXPECT_NE(message().find("Without llm.tp there would be"), std::string::npos) << message();
  problem.space.tp = {.values = {8}};
  problem.space.pp = {.values = {2}};
  EXPECT_NE(message().find("Without llm.tp or llm.pp"), std::string::npos) << message();
  problem.space = {};
  problem.space.pp = {.values = {1}};
  problem.space.cp = {.values = {1}};
  problem.cluster.nodes = 2;
  problem.workload.global_batch_samples = 7;
  for (auto& [kind, encoder] : problem.space.encoders) encoder.allows_disjoint = false;
  EXPECT_NE(message().find("Without llm.cp, llm.pp or encoders there"), std::string::npos) << message();
}

TEST(FluidBound, IsNoLongerThanAnyPlacement) {
  std::mt19937 generator(7);
  const auto draw = [&](double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(generator);
  };
  int num_feasible = 0, num_tight = 0;
  for (int round = 0; round < draws(400); ++round) {
    const int64_t pp = 1 + static_cast<int64_t>(generator() % 3);
    const int64_t layers = pp + static_cast<int64_t>(generator() % 5);
    FluidChain chain{.pp = pp,
                     .microbatches = 1 + static_cast<int64_t>(generator() % 4),
                     .layers = static_cast<double>(layers),
                     .layer_ms = draw(1, 3),
                     .forward_ms = draw(0.3, 1),
                     .static_bytes = draw(0, 2),
                     .activation_bytes = draw(0.5, 2),
                     .other_ms = draw(0, 2),
                     .first_ms = draw(0, 1),
                     .last_ms = draw(0, 3)};
    chain.recompute_saves_bytes = draw(0.1, 1) * chain.activation_bytes;
    chain.memory_bytes = draw(2, 20);
    chain.first_rank_bytes = draw(0, 2);
    chain.last_rank_bytes = draw(0, 2);
    // The least bottleneck over all whole placements, other work going to the rank that it hurts least, as fractions.
    double best = std::numeric_limits<double>::infinity();
    std::vector<int64_t> counts(static_cast<size_t>(pp));
    const std::function<void(size_t, int64_t)> place = [&](size_t rank, int64_t left) {
      if (rank + 1 == counts.size()) {
        counts[rank] = left;
      } else {
        for (counts[rank] = 0; counts[rank] <= left; ++counts[rank]) place(rank + 1, left - counts[rank]);
        return;
      }
      double total = chain.other_ms, longest = 0;
      for (size_t r = 0; r < counts.size(); ++r) {
        const bool is_last = r + 1 == counts.size();
        const auto in_flight = static_cast<double>(std::min(pp - static_cast<int64_t>(r), chain.microbatches));
        const auto n = static_cast<double>(counts[r]);
        const double room =
            chain.memory_bytes - (r == 0 ? chain.first_rank_bytes : 0) - (is_last ? chain.last_rank_bytes : 0);
        double needed = 0;
        while (needed <= n && n * (chain.static_bytes + in_flight * chain.activation_bytes) -
                                      needed * in_flight * chain.recompute_saves_bytes >
                                  room)
          ++needed;
        if (needed > n) return;
        const double ms = n * chain.layer_ms + needed * chain.forward_ms + (r == 0 ? chain.first_ms : 0) +
                          (is_last ? chain.last_ms : 0);
        total += ms;
        longest = std::max(longest, ms);
      }
      best = std::min(best, std::max(longest, total / static_cast<double>(pp)));
    };
    place(0, layers);
    const double bound = least_bottleneck_ms(chain);
    EXPECT_LE(bound, best * (1 + 1e-6));
    if (best == std::numeric_limits<double>::infinity()) continue;
    ++num_feasible;
    num_tight += bound > 0.98 * best ? 1 : 0;
  }
  EXPECT_GE(num_feasible, 100);
  EXPECT_GE(num_tight, num_feasible / 2);
}

TEST(PlanSpace, ReadsPinsAndNamesWhatIsWrong) {
  const auto read = [](const std::string& text) {
    return read_plan_space(*parse_document(text, "space.yaml", Syntax::kYaml));
  };
  const PlanSpace space =
      *read("llm: {tp: 8, pp: [1, 2], zero: {at_most: 1}}\nschedule: zb_h1\nencoders: {placement: inline}");
  EXPECT_TRUE(space.tp.contains(8));
  EXPECT_FALSE(space.tp.contains(4));
  EXPECT_TRUE(space.pp.contains(2));
  EXPECT_FALSE(space.zero.contains(2));
  EXPECT_TRUE(space.zero.contains(0));
  EXPECT_EQ(space.schedules, std::vector{ScheduleName::kZbH1});
  EXPECT_FALSE(space.encoders.at(ModuleKind::kVision).allows_colocated);
  const PlanSpace own = *read(
      "llm: {experts_over_tp: true}\n"
      "vision: {form: on_demand, cp: [1, 2], mbs_parts: 4, zero: {at_most: 2}, sequence_parallel: true}");
  const EncoderSpace& vision = own.encoders.at(ModuleKind::kVision);
  EXPECT_EQ(own.experts_over_tp, true);
  EXPECT_TRUE(vision.allows_on_demand && !vision.allows_before && !vision.allows_fill);
  EXPECT_TRUE(vision.cp.contains(2) && !vision.cp.contains(4) && vision.mbs_parts.contains(4));
  EXPECT_TRUE(vision.zero && vision.zero->contains(0) && !vision.zero->contains(3));
  EXPECT_EQ(vision.sequence_parallel, true);
  EXPECT_EQ(own.encoders.at(ModuleKind::kAudio), EncoderSpace{});
  // Values that a file names stay, even if they are the usual ones.
  EXPECT_TRUE(widened(PlanSpace{}).mbs.contains(16));
  const PlanSpace named = widened(*read("mbs: [1, 2, 4, 8]\nvision: {sequence_parallel: false, form: [before, fill]}"));
  EXPECT_FALSE(named.mbs.contains(16));
  EXPECT_EQ(named.encoders.at(ModuleKind::kVision).sequence_parallel, false);
  EXPECT_FALSE(named.encoders.at(ModuleKind::kVision).allows_on_demand);
  EXPECT_TRUE(named.encoders.at(ModuleKind::kAudio).allows_on_demand);
  EXPECT_NE(read("vision: {zero: 4}").error().message().find("vision.zero"), std::string::npos);
  EXPECT_NE(read("llm: {tpp: 8}").error().message().find("tpp"), std::string::npos);
  EXPECT_NE(read("llm: {tp: {at_least: 4, at_most: 2}}").error().message().find("llm.tp: allows nothing"),
            std::string::npos);
  EXPECT_NE(read("llm: {tp: []}").error().message().find("llm.tp: is an empty list"), std::string::npos);
  EXPECT_NE(read("schedule: 1f2b").error().message().find("schedule"), std::string::npos);
  EXPECT_NE(read("encoders: {form: filled}").error().message().find("Did you mean 'fill'?"), std::string::npos);
}

}  // namespace
}  // namespace weft::plan_search_test
