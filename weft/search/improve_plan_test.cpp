#include "weft/search/improve_plan.h"

#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/draws.h"
#include "tests/support/source_tree.h"
#include "weft/base/units.h"
#include "weft/meaning/check.h"
#include "weft/plan/plan_json.h"
#include "weft/search/neighbours.h"
#include "weft/search/plan_advice.h"
#include "weft/search/polish_placement.h"
#include "weft/simulate/plan_simulator.h"
#include "weft/spec/scenario.h"

namespace weft::improve_plan_test {
namespace {

const Scenarios kScenarios(source_tree().string() + "/scenarios");
constexpr double kLong_s = 1000;

PlanProblem problem_of(const std::string& model, const std::string& cluster, int64_t devices,
                       const std::string& workload, int64_t samples) {
  PlanProblem problem{.model = *kScenarios.model(model),
                      .cluster = *kScenarios.cluster(cluster),
                      .workload = *kScenarios.workload(workload),
                      .space = {}};
  problem.cluster.nodes = 1;
  problem.cluster.devices_per_node = devices;
  problem.workload.global_batch_samples = samples;
  for (Module& module : problem.model.modules) module.layers.resize(std::min<size_t>(module.layers.size(), 8));
  return problem;
}

/// Long samples are rare, and longer than all others of a step together.
PlanProblem heavy_tailed(int64_t devices) {
  PlanProblem problem = problem_of("qwen3-8b", "dgx_h100", devices, "text_4k", 64);
  problem.workload.tokens = Distribution::weighted({{200, 0.95}, {30000, 0.05}});
  problem.workload.tokens_include_media = false;
  return problem;
}

PlanSearchResult search(const PlanProblem& problem, bool improves, int64_t batches = 0) {
  return *search_plans(problem.model, problem.cluster, problem.workload, problem.space,
                       {.time_limit_s = kLong_s, .batches = batches, .improves = improves});
}

std::vector<PlanProblem> problems() {
  std::vector<PlanProblem> all = {problem_of("qwen2-vl-2b", "dgx_h100", 4, "vl_sft", 16),
                                  problem_of("qwen2.5-omni-7b", "hgx_h200", 4, "omni_short", 32),
                                  problem_of("qwen3-30b-a3b", "dgx_h100", 4, "text_4k", 16)};
  for (PlanProblem& problem : all) problem.space.pp = {.values = {1, 2}};
  return all;
}

TEST(ImprovePlan, WhatItFindsIsLegalFitsIsNotSlowerAndSimulatesToTheSameTime) {
  int num_improved = 0;
  // The search itself finds the best plan of the small problems; improving helps where long samples are rare.
  std::vector<std::pair<PlanProblem, std::vector<int64_t>>> all;
  for (const PlanProblem& problem : problems()) all.push_back({problem, {0, 2}});
  all.push_back({heavy_tailed(2), {0, 2}});
  all.push_back({heavy_tailed(4), {0, 2, 8}});
  for (const auto& [problem, draws] : all) {
    for (const int64_t batches : draws) {
      const PlanSearchResult plain = search(problem, false, batches), improved = search(problem, true, batches);
      const FoundPlan& best = improved.best.front();
      const std::string where = problem.model.name + ": " + best.candidate.text(best.plan);
      EXPECT_LE(best.step_time_ms, plain.best.front().step_time_ms) << where;
      EXPECT_TRUE(check_plan(best.plan).empty()) << where << ": " << to_error(check_plan(best.plan), "").message();
      const PlanReport report = *simulate_plan(best.plan);
      EXPECT_NEAR(report.step_time_ms, best.step_time_ms, 1e-9 * best.step_time_ms) << where;
      EXPECT_LE(report.peak_memory_bytes(), problem.cluster.device.memory_gib * kGiB) << where;
      // What was found before the search has ended is beyond the space, too.
      num_improved += improved.improved_by > 0 || improved.is_beyond_space ? 1 : 0;
      if (batches > 0) continue;
      EXPECT_EQ(improved.bound_ms, plain.bound_ms) << where;
      EXPECT_NEAR(improved.improved_by, 1 - best.step_time_ms / plain.best.front().step_time_ms, 1e-12) << where;
    }
  }
  EXPECT_GE(num_improved, 2);
}

TEST(ImprovePlan, TheSameInputsGiveTheSamePlan) {
  for (const PlanProblem& problem : problems()) {
    for (const int64_t batches : {0, 2}) {
      const PlanSearchResult once = search(problem, true, batches), again = search(problem, true, batches);
      EXPECT_EQ(plan_to_text(once.best.front().plan), plan_to_text(again.best.front().plan)) << problem.model.name;
    }
  }
}

// The fastest plan of the space has one stage; one with many, 0.4 % behind it, gains more by moving blocks.
TEST(ImprovePlan, StartsFromRunnersUpToo) {
  if (kIsSanitized) GTEST_SKIP() << "left to the optimised build: searches of real size";
  PlanProblem problem{.model = *kScenarios.model("llama3-70b"),
                      .cluster = *kScenarios.cluster("dgx_h100", 8),
                      .workload = *kScenarios.workload("text_4k"),
                      .space = {}};
  problem.workload.global_batch_samples = 64;
  problem.cluster.between_nodes.bandwidth_gb_per_s *= 2;
  const PlanSearchOptions options{.time_limit_s = kLong_s, .memory_margin = 0.08};
  PlanSearchOptions improving = options;
  improving.improves = true;
  const FoundPlan space =
      search_plans(problem.model, problem.cluster, problem.workload, problem.space, options)->best.front();
  const FoundPlan best =
      search_plans(problem.model, problem.cluster, problem.workload, problem.space, improving)->best.front();
  EXPECT_EQ(space.candidate.pp, 1);
  EXPECT_GT(best.candidate.pp, 1) << best.candidate.text(best.plan);
  EXPECT_LT(best.step_time_ms, space.step_time_ms * 0.998);
  Plan plan = best.plan;
  plan.cluster = problem.cluster;
  EXPECT_NEAR(simulate_plan(plan)->step_time_ms, best.step_time_ms, 1e-9 * best.step_time_ms);
}

/// Steps with more and more of something.
struct Steps {
  std::string of;
  std::vector<double> space_ms, improved_ms;
};

/// What the command does by default, but for the choice of a simpler plan: with all that improving adds.
std::vector<Steps> steps_with_more(const PlanProblem& problem, int64_t batches) {
  std::vector<Steps> all;
  for (const char* of : {"memory", "links within nodes", "links between nodes"}) {
    Steps& steps = all.emplace_back(Steps{of, {}, {}});
    for (const double factor : {0.9, 1.0, 1.25, 2.0}) {
      PlanProblem changed = problem;
      Cluster& cluster = changed.cluster;
      (steps.of == "memory"               ? cluster.device.memory_gib
       : steps.of == "links within nodes" ? cluster.within_node.bandwidth_gb_per_s
                                          : cluster.between_nodes.bandwidth_gb_per_s) *= factor;
      const auto step_ms = [&](bool improves) {
        const PlanSearchResult found =
            *search_plans(changed.model, changed.cluster, changed.workload, changed.space,
                          {.time_limit_s = kLong_s, .memory_margin = 0.08, .batches = batches, .improves = improves});
        return found.best.empty() ? std::numeric_limits<double>::infinity() : found.best.front().step_time_ms;
      };
      steps.space_ms.push_back(step_ms(false));
      steps.improved_ms.push_back(step_ms(true));
    }
  }
  return all;
}

// Only the space has a proof: what improving adds, by one change after another, is of one place more than of another.
TEST(ImprovePlan, MoreMemoryAndFasterLinksNeverHurtTheSpaceAndHardlyWhatImprovingAdds) {
  if (kIsSanitized) GTEST_SKIP() << "left to the optimised build: searches of real size";
  constexpr double kMostLost = 0.005;
  std::vector<PlanProblem> all = {problem_of("llama3-8b", "dgx_h100", 8, "text_4k", 64),
                                  problem_of("qwen3-30b-a3b", "dgx_h100", 4, "text_4k", 32),
                                  problem_of("qwen2-vl-2b", "dgx_h100", 4, "vl_sft", 16)};
  for (PlanProblem& problem : all) problem.cluster.nodes = 2;
  for (const PlanProblem& problem : all) {
    for (const Steps& steps : steps_with_more(problem, /*batches=*/0)) {
      double least_space = std::numeric_limits<double>::infinity(), least_improved = least_space;
      for (size_t i = 0; i < steps.space_ms.size(); ++i) {
        const std::string where = problem.model.name + ", " + steps.of + ", " + std::to_string(i);
        EXPECT_LE(steps.improved_ms[i], steps.space_ms[i]) << where;
        EXPECT_LE(steps.space_ms[i], least_space * (1 + 1e-9)) << where;
        EXPECT_LE(steps.improved_ms[i], least_improved * (1 + kMostLost)) << where;
        least_space = std::min(least_space, steps.space_ms[i]);
        least_improved = std::min(least_improved, steps.improved_ms[i]);
      }
    }
  }
}

// On drawn batches the space has no proof of their steps either.
TEST(ImprovePlan, MoreMemoryAndFasterLinksHardlyHurtOnDrawnBatches) {
  if (kIsSanitized) GTEST_SKIP() << "left to the optimised build: searches of real size";
  constexpr double kMostLost = 0.01;
  PlanProblem problem = problem_of("qwen2-vl-2b", "dgx_h100", 4, "vl_sft", 16);
  problem.cluster.nodes = 2;
  for (const Steps& steps : steps_with_more(problem, /*batches=*/4)) {
    double least_ms = std::numeric_limits<double>::infinity();
    for (size_t i = 0; i < steps.space_ms.size(); ++i) {
      EXPECT_LE(steps.improved_ms[i], steps.space_ms[i] * (1 + 1e-9)) << steps.of << i;
      EXPECT_LE(steps.improved_ms[i], least_ms * (1 + kMostLost)) << steps.of << i;
      least_ms = std::min(least_ms, steps.improved_ms[i]);
    }
  }
}

TEST(ImprovePlan, ClimbingInRoundsLeadsWhereClimbingInOneGoDoes) {
  for (const PlanProblem& problem : problems()) {
    // Not the best, so that there is somewhere to go.
    const PlanSearchResult found = *search_plans(problem.model, problem.cluster, problem.workload, problem.space,
                                                 {.time_limit_s = kLong_s, .top = 6, .batches = 0, .improves = false});
    const Plan plan = plan_without_settings(problem.model, problem.cluster, problem.workload);
    Workbench bench(problem.space, plan, *PlanSimulator::create(plan));
    PlanClimb once(bench, found.best.back(), nullptr), rounds(bench, found.best.back(), nullptr);
    once.go_on(1000, Deadline(kLong_s));
    int num_rounds = 0;
    for (; !rounds.has_ended() && num_rounds < 1000; ++num_rounds) rounds.go_on(7, Deadline(kLong_s));
    EXPECT_TRUE(once.has_ended());
    EXPECT_GT(num_rounds, 3);
    EXPECT_LT(once.best_ms(), found.best.back().step_time_ms) << problem.model.name;
    EXPECT_EQ(plan_to_text(once.best().plan), plan_to_text(rounds.best().plan)) << problem.model.name;
  }
}

/// The space in which encoders are only where a candidate has them, and are only run as it does.
PlanSpace with_encoders_of(const Candidate& c, const PlanProblem& problem) {
  PlanSpace space = problem.space;
  for (size_t e = 0; e + 1 < problem.model.modules.size(); ++e) {
    EncoderSpace& encoder = space.encoders[problem.model.modules[e].kind];
    const EncoderChoice& choice = c.encoders[e];
    const auto is_at = [&](ModulePlacement placement) { return choice.placement == placement; };
    encoder.allows_inline = is_at(ModulePlacement::kInline);
    encoder.allows_colocated = is_at(ModulePlacement::kColocated);
    encoder.allows_disjoint = is_at(ModulePlacement::kDisjoint);
    encoder.allows_partial = is_at(ModulePlacement::kPartial);
    encoder.allows_before = choice.form == EncoderForm::kBefore;
    encoder.allows_fill = choice.form == EncoderForm::kFill;
    encoder.given.insert("form");
  }
  return space;
}

TEST(ImprovePlan, AClimbThatHoldsEncodersMovesThemOnlyWhenNothingElseHelps) {
  int num_moved = 0;
  for (const PlanProblem& problem : problems()) {
    if (problem.model.modules.size() == 1) continue;
    const PlanSearchResult found = *search_plans(problem.model, problem.cluster, problem.workload, problem.space,
                                                 {.time_limit_s = kLong_s, .top = 6, .batches = 0, .improves = false});
    const FoundPlan& start = found.best.back();
    const Plan plan = plan_without_settings(problem.model, problem.cluster, problem.workload);
    const PlanSpace pinned_space = with_encoders_of(start.candidate, problem);
    Workbench bench(problem.space, plan, *PlanSimulator::create(plan));
    Workbench pinned_bench(pinned_space, plan, *PlanSimulator::create(plan));
    PlanClimb pinned(pinned_bench, start, nullptr);
    pinned.go_on(5000, Deadline(kLong_s));
    ASSERT_TRUE(pinned.has_ended());
    PlanClimb holds(bench, start, nullptr, /*holds_encoders=*/true);
    bool has_met = false;
    for (int tries = 0; !holds.has_ended() && tries < 5000; ++tries) {
      holds.go_on(1, Deadline(kLong_s));
      has_met |= plan_to_text(holds.best().plan) == plan_to_text(pinned.best().plan);
    }
    EXPECT_TRUE(holds.has_ended());
    EXPECT_TRUE(has_met) << problem.model.name << ": " << pinned.best().candidate.text(plan);
    num_moved += holds.best_ms() < pinned.best_ms() ? 1 : 0;
    // No neighbour of the last is better.
    PlanClimb again(bench, holds.best(), nullptr);
    again.go_on(5000, Deadline(kLong_s));
    EXPECT_EQ(again.best_ms(), holds.best_ms()) << problem.model.name;
  }
  EXPECT_GE(num_moved, 1);
}

TEST(ImprovePlan, LogitsAreRecomputedWhereThatMakesStepsShorter) {
  // Few layers and a large vocabulary: much of what is kept is logits.
  int num_recomputed = 0;
  for (const int64_t devices : {1, 2}) {
    for (int gib = 10; gib <= 40; ++gib) {
      PlanProblem problem = problem_of("qwen2-vl-2b", "dgx_h100", devices, "vl_sft", 16);
      problem.cluster.device.memory_gib = gib;
      PlanProblem pinned = problem;
      pinned.space.given = {"recompute"};
      const PlanSearchResult result = search(problem, true), kept = search(pinned, true);
      ASSERT_EQ(result.best.empty(), kept.best.empty());
      if (result.best.empty()) continue;
      const FoundPlan& found = result.best.front();
      EXPECT_LE(found.step_time_ms, kept.best.front().step_time_ms * (1 + 1e-9)) << gib;
      EXPECT_FALSE(kept.best.front().candidate.recompute_logits);
      EXPECT_EQ(found.plan.llm().recompute_logits, found.candidate.recompute_logits);
      if (!found.candidate.recompute_logits) continue;
      ++num_recomputed;
      EXPECT_TRUE(result.is_beyond_space);
      EXPECT_NE(found.candidate.text(found.plan).find("logits recomputed"), std::string::npos);
      EXPECT_NEAR(simulate_plan(found.plan)->step_time_ms, found.step_time_ms, 1e-9 * found.step_time_ms);
      EXPECT_LE(simulate_plan(found.plan)->peak_memory_bytes(), gib * kGiB);
    }
  }
  EXPECT_GE(num_recomputed, 2);
}

// The whole space around the usual one, searched exactly, is what improving can reach at best.
TEST(ImprovePlan, LiesBetweenTheSpaceAndTheSpaceAroundIt) {
  int num_reached = 0, num_problems = 0;
  for (const int64_t devices : {2, 4}) {
    for (const double gib : {30.0, 80.0}) {
      PlanProblem problem = problem_of("qwen2-vl-2b", "dgx_h100", devices, "vl_sft", 16);
      problem.cluster.device.memory_gib = gib;
      problem.space.schedules = {ScheduleName::k1f1b};
      problem.space.cp = {.values = {1, 2}};
      problem.space.given = {"recompute"};  // the space around has no logits that are recomputed
      EncoderSpace& vision = problem.space.encoders.at(ModuleKind::kVision);
      vision.allows_disjoint = vision.allows_partial = vision.allows_fill = false;
      PlanProblem around = problem;
      around.space.mbs = {.values = {1, 2, 4, 8, 16}};
      EncoderSpace& wide = around.space.encoders.at(ModuleKind::kVision);
      wide.cp = {.values = {1, 2, 4}};
      wide.zero = Allowed{.values = {0, 1, 2, 3}, .at_least = 0};
      wide.sequence_parallel.reset();
      wide.mbs_scale = {.values = {1, 2, 3, 4, 6, 8, 12, 16}};
      wide.mbs_parts = {.values = {1, 2, 4, 8, 16}};
      const double inner_ms = search(problem, false).best.front().step_time_ms;
      const double improved_ms = search(problem, true).best.front().step_time_ms;
      const double outer_ms = search(around, false).best.front().step_time_ms;
      EXPECT_LE(improved_ms, inner_ms);
      EXPECT_GE(improved_ms, outer_ms * (1 - 1e-9));
      EXPECT_LE(improved_ms, outer_ms * 1.02);
      num_reached += improved_ms <= outer_ms * 1.001 ? 1 : 0;
      ++num_problems;
    }
  }
  EXPECT_GE(num_reached, num_problems / 2);
}

TEST(ImprovePlan, LargeMicrobatchesAreFoundWhereLongSamplesAreRare) {
  const PlanProblem problem = heavy_tailed(4);
  const PlanSearchResult plain = search(problem, false, 8), improved = search(problem, true, 8);
  EXPECT_GT(improved.best.front().candidate.mbs, 8) << improved.best.front().candidate.text(plain.best.front().plan);
  EXPECT_TRUE(improved.is_beyond_space);
  EXPECT_LT(improved.best.front().step_time_ms, 0.99 * plain.best.front().step_time_ms);
}

TEST(ImprovePlan, PinsStay) {
  PlanProblem problem = heavy_tailed(4);
  problem.space.mbs = {.values = {1}};
  problem.space.tp = {.values = {2}};
  problem.space.zero = {.values = {1}, .at_least = 0};
  const Candidate found = search(problem, true, 4).best.front().candidate;
  EXPECT_EQ(found.mbs, 1);
  EXPECT_EQ(found.tp, 2);
  EXPECT_EQ(found.zero, 1);
  for (const Candidate& c : neighbours_of(
           found, plan_without_settings(problem.model, problem.cluster, problem.workload), widened(problem.space))) {
    EXPECT_EQ(c.mbs, 1);
    EXPECT_EQ(c.tp, 2);
    EXPECT_TRUE(c.zero == 1 || c.dp * c.cp == 1);
  }
}

/// Orders in bubbles are made once a candidate has been placed.
bool fills_bubbles(const Candidate& c, const Plan& problem) {
  const auto end = c.encoders.begin() + static_cast<std::ptrdiff_t>(problem.modules.size() - 1);
  return std::any_of(c.encoders.begin(), end, [](const EncoderChoice& e) { return e.fills(); });
}

/// A plan with a candidate's settings. Where the layers of a pipeline of several modules lie is not the candidate's to
/// say: those of encoders go to its first stage.
void complete_plan(const Candidate& c, Plan& plan) {
  fill_plan(c, plan);
  for (ModulePlan& m : plan.modules) {
    if (m.placement != ModulePlacement::kInline) continue;
    for (std::vector<int64_t>& chunks : m.layers) std::fill(chunks.begin(), chunks.end(), 0);
    m.layers.front().front() = std::ssize(plan.model.find(m.kind)->layers);
  }
}

TEST(Neighbours, AreDifferentLegalAndEachOnce) {
  int num_inline = 0;  // with several stages
  for (const PlanProblem& problem : problems()) {
    Plan plan = plan_without_settings(problem.model, problem.cluster, problem.workload);
    const Candidate found = search(problem, false).best.front().candidate;
    std::vector<Candidate> all = neighbours_of(found, plan, widened(problem.space));
    EXPECT_GT(all.size(), 10u);
    EXPECT_TRUE(is_in(found, plan, problem.space));
    for (size_t i = 0; i < all.size(); ++i) {
      EXPECT_FALSE(all[i] == found);
      EXPECT_TRUE(is_allowed(all[i], plan, widened(problem.space)));
      EXPECT_EQ(std::count(all.begin(), all.end(), all[i]), 1);
      if (fills_bubbles(all[i], plan)) continue;
      num_inline += all[i].pp > 1 && all[i].encoders.front().is_inline() ? 1 : 0;
      complete_plan(all[i], plan);
      EXPECT_TRUE(check_plan(plan).empty()) << to_error(check_plan(plan), "").message();
    }
  }
  EXPECT_GT(num_inline, 0);
}

// Each of the three changes by itself is slower or does not fit where long samples are rare and experts many.
TEST(Neighbours, ContextRanksBecomeReplicasTogetherWithARingAndRecomputedLogits) {
  PlanProblem problem = problem_of("qwen3-30b-a3b", "hgx_h200", 8, "text_4k", 256);
  problem.cluster.nodes = 4;
  const Plan plan = plan_without_settings(problem.model, problem.cluster, problem.workload);
  Candidate start;
  start.dp = 8;
  start.cp = start.cp_ulysses = 4;
  start.mbs = 32;
  start.zero = 2;
  Candidate next = start;
  next.dp = 16;
  next.cp = 2;
  next.cp_ulysses = 1;
  next.mbs = 16;
  next.recompute_logits = true;
  const std::vector<Candidate> all = neighbours_of(start, plan, widened(problem.space));
  EXPECT_EQ(std::count(all.begin(), all.end(), next), 1);
}

// One copy of all weights has no ZeRO stage, one stage no schedule, and one rank no rows to divide.
TEST(Neighbours, SettingsThatMeantNothingTakeWhatIsPinned) {
  PlanProblem problem = problem_of("qwen3-8b", "dgx_h100", 4, "text_4k", 16);
  problem.cluster.nodes = 2;
  problem.space.zero = {.values = {2}};
  problem.space.schedules = {ScheduleName::kZbV};
  problem.space.sequence_parallel = false;
  problem.space.stages_are_neighbours = true;
  const Plan plan = plan_without_settings(problem.model, problem.cluster, problem.workload);
  const auto has_one = [&](const Candidate& start, auto&& is_wanted) {
    EXPECT_TRUE(is_allowed(start, plan, widened(problem.space)));
    const std::vector<Candidate> all = neighbours_of(start, plan, widened(problem.space));
    return std::any_of(all.begin(), all.end(), is_wanted);
  };
  Candidate no_copies;
  no_copies.tp = 4;
  no_copies.pp = 2;
  no_copies.schedule = ScheduleName::kZbV;
  no_copies.vpp = 2;
  EXPECT_TRUE(has_one(no_copies, [](const Candidate& c) { return c.dp == 2 && c.pp == 1 && c.zero == 2; }));
  Candidate no_stages;
  no_stages.tp = 2;
  no_stages.dp = 4;
  no_stages.zero = 2;
  EXPECT_TRUE(has_one(no_stages, [](const Candidate& c) {
    return c.pp == 2 && c.schedule == ScheduleName::kZbV && c.vpp == 2 && c.stages_are_neighbours;
  }));
  no_stages.tp = 1;
  no_stages.dp = 8;
  EXPECT_TRUE(has_one(no_stages, [](const Candidate& c) { return c.tp == 2 && !c.sequence_parallel; }));
}

TEST(FarCandidates, AreLegalAndHaveEncodersWhoseSamplesTheRanksOfTheLlmShare) {
  for (const PlanProblem& problem : problems()) {
    Plan plan = plan_without_settings(problem.model, problem.cluster, problem.workload);
    const size_t num_encoders = plan.modules.size() - 1;
    const Candidate found = search(problem, false).best.front().candidate;
    int num_shared = 0;
    for (const Candidate& c : far_from(found, plan, widened(problem.space))) {
      const auto is_shared = [&](const EncoderChoice& e) {
        return e.placement == ModulePlacement::kColocated && e.form == EncoderForm::kBefore && e.cp > 1 &&
               e.cp == c.tp * c.cp;
      };
      const auto end = c.encoders.begin() + static_cast<std::ptrdiff_t>(num_encoders);
      num_shared += num_encoders > 0 && std::all_of(c.encoders.begin(), end, is_shared) ? 1 : 0;
      if (fills_bubbles(c, plan)) continue;
      complete_plan(c, plan);
      EXPECT_TRUE(check_plan(plan).empty()) << to_error(check_plan(plan), "").message();
    }
    EXPECT_EQ(num_shared > 0, num_encoders > 0) << problem.model.name;
  }
}

// With two stages, all placements next to one can be tried.
TEST(PolishPlacement, EndsWhereNoBlockBetweenTwoStagesHelpsOnTheBatches) {
  for (const auto& [model, workload] : {std::pair("qwen2-vl-2b", "vl_sft"), std::pair("qwen3-8b", "text_4k")}) {
    PlanProblem problem = problem_of(model, "dgx_h100", 4, workload, 16);
    problem.workload.tokens = Distribution::weighted({{500, 0.9}, {12000, 0.1}});
    problem.workload.tokens_include_media = false;
    problem.space.pp = {.values = {2}};
    problem.space.vpp = {.values = {1}};
    problem.space.schedules = {ScheduleName::k1f1b};
    constexpr int64_t kBatches = 4;
    const FoundPlan found = search(problem, false, kBatches).best.front();
    DrawnSamples samples(found.plan);
    PlanPricer pricer(*PlanSimulator::create(found.plan), samples, kBatches);
    const FoundPlan polished = polish_placement(pricer, found, problem.space.recompute, Deadline(kLong_s));
    EXPECT_LE(polished.step_time_ms, found.step_time_ms * (1 + 1e-12));
    EXPECT_TRUE(check_plan(polished.plan).empty());
    // Far from the best, it comes back.
    FoundPlan uneven = found;
    std::vector<std::vector<int64_t>>& layers = uneven.plan.modules.back().layers;
    layers = {{layers[0][0] + layers[1][0] - 1}, {1}};
    uneven.plan.modules.back().recompute.clear();
    const FoundPlan back = polish_placement(pricer, uneven, problem.space.recompute, Deadline(kLong_s));
    EXPECT_LE(back.step_time_ms, found.step_time_ms * 1.01);
    for (const FoundPlan* plan : {&polished, &back}) {
      for (size_t m = 0; m < plan->plan.modules.size(); ++m) {
        for (const int64_t moved : {-1, 1}) {
          Plan other = plan->plan;
          ModulePlan& module = other.modules[m];
          if (!module.is_in_pipeline()) continue;
          module.layers[0][0] += moved;
          module.layers[1][0] -= moved;
          if (std::min(module.layers[0][0], module.layers[1][0]) < 0 || !module.recompute_of(0, 0).empty() ||
              !module.recompute_of(1, 0).empty())
            continue;
          const std::optional<PlanPrice> price = pricer.price(other);
          if (price) {
            EXPECT_GE(price->step_ms, plan->step_time_ms * (1 - 2e-5));
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace weft::improve_plan_test
