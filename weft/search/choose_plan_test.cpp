#include "weft/search/choose_plan.h"

#include <gtest/gtest.h>

#include "tests/support/draws.h"
#include "tests/support/search/real_problem.h"
#include "tests/support/source_tree.h"
#include "weft/base/units.h"
#include "weft/plan/plan_json.h"
#include "weft/search/best_plans.h"
#include "weft/search/plan_advice.h"
#include "weft/simulate/plan_simulator.h"
#include "weft/spec/scenario.h"

namespace weft::choose_plan_test {
namespace {

const Scenarios kScenarios(source_tree().string() + "/scenarios");

PlanProblem tiny_problem(int64_t nodes, int64_t devices_per_node, double memory_gib) {
  PlanProblem problem{.model = *kScenarios.model("tiny-vl"),
                      .cluster = *kScenarios.cluster("local_cpu"),
                      .workload = *kScenarios.workload("vl_sft"),
                      .space = {}};
  problem.cluster.nodes = nodes;
  problem.cluster.devices_per_node = devices_per_node;
  problem.cluster.device.memory_gib = memory_gib;
  problem.cluster.between_nodes = problem.cluster.within_node;
  problem.workload.global_batch_samples = 2 * nodes * devices_per_node;
  problem.space.cp = {.values = {1, 2}};
  problem.space.mbs = {.values = {1, 2}};
  return problem;
}

PlanSearchResult search(const PlanProblem& problem, const PlanSearchOptions& options = {.time_limit_s = 1000}) {
  return *search_plans(problem.model, problem.cluster, problem.workload, problem.space, options);
}

TEST(ChoosePlan, IsWhatAllCandidatesTogetherGive) {
  const SearchBounds none{.work = false, .schedule = false, .placement = false};
  int num_slower = 0;
  for (const auto& [nodes, devices, gib] : {std::tuple{1, 4, 0.4}, {2, 2, 1.0}, {1, 8, 0.36}, {2, 4, 0.5}}) {
    if (kIsSanitized && nodes * devices > 4) continue;
    const PlanProblem problem = tiny_problem(nodes, devices, gib);
    // Every candidate, placed and simulated.
    const PlanSearchResult all = search(problem, {.time_limit_s = 1000, .top = 1'000'000, .bounds = none});
    for (const double within : {0.0, 0.02, 0.1, 0.5}) {
      const FoundPlan& expected = all.best[choose_plan(all.best, within)];
      const PlanSearchResult result = search(problem, {.time_limit_s = 1000, .within = within});
      const std::string where = std::to_string(nodes) + " x " + std::to_string(devices) + ", " +
                                std::to_string(within) + ": " + result.chosen->candidate.text(result.chosen->plan) +
                                " instead of " + expected.candidate.text(expected.plan);
      EXPECT_NEAR(result.best.front().step_time_ms, all.best.front().step_time_ms, kTie * all.best.front().step_time_ms)
          << where;
      EXPECT_EQ(result.chosen->simplicity, expected.simplicity) << where;
      EXPECT_NEAR(result.chosen->step_time_ms, expected.step_time_ms, kTie * expected.step_time_ms) << where;
      num_slower += result.chosen->step_time_ms > result.best.front().step_time_ms * (1 + kTie) ? 1 : 0;
    }
  }
  EXPECT_GE(num_slower, kIsSanitized ? 0 : 4) << "a margin that never chooses anything else tests nothing";
}

TEST(ChoosePlan, AWiderMarginIsNeverLessSimple) {
  for (const PlanProblem& problem : {real_problem("llama3-8b", "dgx_h100", 1, "text_4k", 512),
                                     real_problem("qwen2-vl-7b", "dgx_h100", 1, "vl_sft", 64)}) {
    std::optional<Simplicity> last;
    double fastest_ms = 0;
    for (const double within : {0.0, 0.005, 0.02, 0.1}) {
      const PlanSearchResult result = search(problem, {.time_limit_s = 1000, .within = within});
      const FoundPlan& chosen = *result.chosen;
      if (!last) fastest_ms = chosen.step_time_ms;
      EXPECT_EQ(result.best.front().step_time_ms, fastest_ms) << "the fastest does not depend on the margin";
      EXPECT_LE(chosen.step_time_ms, fastest_ms * (1 + within) * (1 + 1e-7));
      if (last) {
        EXPECT_LE(chosen.simplicity, *last) << within;
      }
      last = chosen.simplicity;
      EXPECT_EQ(simulate_plan(chosen.plan)->step_time_ms, chosen.step_time_ms);
    }
  }
}

TEST(ChoosePlan, SaysWhy) {
  FoundPlan fastest{.candidate = {{.cp = 2, .dp = 4, .zero = 3}}, .plan = {}, .step_time_ms = 100};
  FoundPlan chosen{.candidate = {{.dp = 8, .zero = 1}}, .plan = {}, .step_time_ms = 101};
  for (FoundPlan* found : {&fastest, &chosen}) {
    found->plan.modules.emplace_back();
    found->simplicity = simplicity_of(found->candidate, 0);
  }
  EXPECT_EQ(why_chosen(chosen, fastest), "it needs no context parallelism, ZeRO 1 instead of 3");
}

TEST(MemoryMargin, IsLeftFreeAndCostsMoreTheLargerItIs) {
  for (const PlanProblem& problem :
       {tiny_problem(1, 4, 0.4), real_problem("llama3-8b", "dgx_h100", 1, "text_4k", 64)}) {
    double last_ms = 0;
    for (const double margin : {0.0, 0.05, 0.1, 0.2}) {
      const PlanSearchResult result = search(problem, {.time_limit_s = 1000, .memory_margin = margin});
      if (result.best.empty()) break;
      const FoundPlan& found = *result.chosen;
      const double limit = problem.cluster.device.memory_gib * kGiB;
      EXPECT_EQ(found.plan.cluster.device.memory_gib, problem.cluster.device.memory_gib);
      EXPECT_LE(simulate_plan(found.plan)->peak_memory_bytes(), limit * (1 - margin) * (1 + 1e-12));
      EXPECT_GE(found.step_time_ms, last_ms * (1 - 1e-9)) << margin;
      last_ms = found.step_time_ms;
    }
    EXPECT_GT(last_ms, 0);
  }
}

TEST(MemoryMargin, WhereItAloneIsInTheWayTheErrorSaysSo) {
  PlanProblem problem = tiny_problem(1, 4, 0.4);
  PlanSearchOptions options{.time_limit_s = 20, .memory_margin = 0.9};
  PlanSearchResult result = search(problem, options);
  ASSERT_TRUE(result.best.empty());
  const std::string message = explain_no_plan(problem, result, options).message();
  EXPECT_NE(message.find("of which 90 % stay free"), std::string::npos) << message;
  EXPECT_NE(message.find("GiB more are needed"), std::string::npos) << message;
  // The margin that it names is enough.
  const size_t at = message.find("--memory-margin ");
  ASSERT_NE(at, std::string::npos) << message;
  options.memory_margin = std::stod(message.substr(at + 16)) / 100;
  EXPECT_GT(options.memory_margin, 0);
  EXPECT_FALSE(search(problem, options).best.empty()) << message;
}

TEST(TopPlans, AreOfDifferentTimesAndSaySoOfTies) {
  const PlanProblem problem = real_problem("llama3-8b", "dgx_h100", 1, "text_4k", 512);
  const PlanSearchResult result = search(problem, {.time_limit_s = 1000, .top = 12});
  ASSERT_EQ(result.best.size(), 12u);
  size_t num_ties = 0;
  for (size_t i = 0; i < result.best.size(); ++i) {
    const FoundPlan& found = result.best[i];
    num_ties += found.ties.size();
    for (const Candidate& tie : found.ties) EXPECT_LE(found.simplicity.kinds, simplicity_of(tie, 0).kinds);
    if (i > 0) {
      EXPECT_GT(found.step_time_ms, result.best[i - 1].step_time_ms * (1 + kTie));
    }
  }
  EXPECT_GT(num_ties, 0u) << "context parallelism that changes nothing is left out";
}

TEST(FastestPlan, MoreMemoryFasterLinksAndMoreNodesNeverMakeItSlower) {
  // The space grows with them, so that a violation is a bound that dropped too much, or a price that falls.
  int num_compared = 0;
  for (const auto& [model, cluster, workload, batch] : {std::tuple{"llama3-8b", "dgx_h100", "text_4k", 128},
                                                        {"qwen3-30b-a3b", "hgx_h200", "text_4k", 128},
                                                        {"qwen2-vl-7b", "ascend_910b_8", "vl_sft", 64},
                                                        {"qwen2.5-omni-7b", "hgx_h200", "omni_short", 64}}) {
    if (kIsSanitized) continue;
    PlanProblem base = real_problem(model, cluster, 1, workload, batch);
    base.space.cp = {.values = {1, 2}};
    const PlanSearchOptions options{.time_limit_s = 20};
    const PlanSearchResult found = search(base, options);
    ASSERT_FALSE(found.best.empty()) << model;
    if (!found.is_optimal) continue;
    EXPECT_EQ(plan_to_text(search(base, options).chosen->plan), plan_to_text(found.chosen->plan)) << model;
    const auto expect_no_slower = [&](const PlanProblem& changed, const char* what) {
      EXPECT_LE(search(changed, options).best.front().step_time_ms, found.best.front().step_time_ms * (1 + 1e-9))
          << model << ": " << what;
      ++num_compared;
    };
    PlanProblem changed = base;
    changed.cluster.device.memory_gib *= 1.25;
    expect_no_slower(changed, "more memory");
    changed = base;
    changed.cluster.within_node.bandwidth_gb_per_s *= 2;
    changed.cluster.between_nodes.bandwidth_gb_per_s *= 2;
    expect_no_slower(changed, "faster links");
    // Two encoders on two nodes take seconds.
    if (base.model.modules.size() > 2) continue;
    changed = base;
    changed.cluster.nodes = 2;
    expect_no_slower(changed, "more nodes");
  }
  EXPECT_GE(num_compared, kIsSanitized ? 0 : 6);
}

}  // namespace
}  // namespace weft::choose_plan_test
