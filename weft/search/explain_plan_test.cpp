#include "weft/search/explain_plan.h"

#include <algorithm>
#include <set>

#include <gtest/gtest.h>

#include "tests/support/draws.h"
#include "tests/support/meaning/random_plan.h"
#include "tests/support/source_tree.h"
#include "weft/search/neighbours.h"
#include "weft/simulate/plan_simulator.h"
#include "weft/spec/model_reader.h"
#include "weft/spec/scenario.h"

namespace weft::explain_plan_test {
namespace {

const Scenarios kScenarios(source_tree().string() + "/scenarios");

double sum_ms(const std::vector<PartDifference>& parts) {
  double sum = 0;
  for (const PartDifference& part : parts) sum += part.more_ms;
  return sum;
}

TEST(ExplainPlan, PartsAddUpToTheDifferenceOfAnyTwoPlans) {
  for (const char* fixture : {"qwen2_5_omni", "qwen3_moe_norm"}) {
    const Model model = *read_model_file(source_tree().string() + "/tests/parity/fixtures/" + fixture);
    const auto report_of = [&](uint64_t seed) {
      return *simulate_plan(random_plan(model, seed), {.batches = static_cast<int64_t>(seed % 3)});
    };
    PlanReport from = report_of(0);
    for (uint64_t seed = 1; seed < draws(uint64_t{100}); ++seed) {
      const PlanReport to = report_of(seed);
      const std::vector<PartDifference> parts = explain_difference(from, to);
      ASSERT_NEAR(sum_ms(parts), to.step_time_ms - from.step_time_ms, 1e-6 * to.step_time_ms) << fixture << seed;
      EXPECT_TRUE(explain_difference(to, to).empty());
      from = to;
    }
  }
}

TEST(ExplainPlan, AlternativesDifferFromTheChosenPlanAndFromEachOther) {
  for (const double within : {0.0, 0.02}) {
    const PlanProblem problem{.model = *kScenarios.model("llama3-8b"),
                              .cluster = *kScenarios.cluster("dgx_h100"),
                              .workload = *kScenarios.workload("text_4k"),
                              .space = {}};
    const PlanSearchOptions options{.within = within};
    PlanSearchResult result = *search_plans(problem.model, problem.cluster, problem.workload, problem.space, options);
    const Explanation explanation = *explain_plan(problem, result, options);
    const FoundPlan& chosen = *result.chosen;
    EXPECT_EQ(explanation.faster_by, 0) << "the search has a proof";
    EXPECT_GE(explanation.alternatives.size(), 4u);
    std::set<std::string> settings = {chosen.candidate.text(chosen.plan)};
    size_t num_names = 0;
    for (const Alternative& alternative : explanation.alternatives) {
      ASSERT_FALSE(alternative.names.empty());
      num_names += alternative.names.size();
      const std::string& name = alternative.names.front();
      if (!alternative.best) {
        EXPECT_NE(alternative.reason.find("GiB too much"), std::string::npos) << alternative.reason;
        continue;
      }
      EXPECT_GE(alternative.best->step_time_ms, result.best.front().step_time_ms * (1 - 1e-9)) << name;
      EXPECT_TRUE(settings.insert(alternative.best->candidate.text(alternative.best->plan)).second) << name;
      EXPECT_NEAR(sum_ms(alternative.parts), alternative.best->step_time_ms - chosen.step_time_ms,
                  1e-6 * chosen.step_time_ms)
          << name;
    }
    EXPECT_GT(num_names, explanation.alternatives.size()) << "some pins lead to one plan";
    ASSERT_GE(explanation.what_ifs.size(), 3u);
    for (const WhatIf& what_if : explanation.what_ifs) EXPECT_GE(what_if.throughput_gain, -1e-9) << what_if.change;
  }
}

// Improving one alternative may lead to a plan that is better for another, too.
TEST(ExplainPlan, NoAlternativeIsSlowerThanAnotherWithItsSetting) {
  const PlanProblem problem{.model = *kScenarios.model("llama3-8b"),
                            .cluster = *kScenarios.cluster("dgx_h100"),
                            .workload = *kScenarios.workload("text_4k"),
                            .space = {}};
  const PlanSearchOptions options{.within = 0.02, .memory_margin = 0.08, .improves = true};
  PlanSearchResult result = *search_plans(problem.model, problem.cluster, problem.workload, problem.space, options);
  const Explanation explanation = *explain_plan(problem, result, options);
  size_t num_compared = 0;
  for (const Alternative& alternative : explanation.alternatives) {
    for (const std::string& name : alternative.names) {
      for (const Alternative& other : explanation.alternatives) {
        if (!alternative.best || !other.best) continue;
        const Candidate& c = other.best->candidate;
        const std::set<std::string> settings = {"tp " + std::to_string(c.tp), "pp " + std::to_string(c.pp),
                                                "mbs " + std::to_string(c.mbs), "zero " + std::to_string(c.zero)};
        if (!settings.contains(name)) continue;
        EXPECT_LE(alternative.best->step_time_ms, other.best->step_time_ms * (1 + 1e-9)) << name;
        num_compared += &other != &alternative ? 1 : 0;
      }
    }
  }
  EXPECT_GT(num_compared, 0u);
}

// A proof is of a space, and improving goes beyond it.
TEST(ExplainPlan, WhatImprovingFindsBeyondTheSpaceIsNotCalledProven) {
  PlanProblem problem{.model = *kScenarios.model("llama3-8b"),
                      .cluster = *kScenarios.cluster("dgx_h100", 2),
                      .workload = *kScenarios.workload("text_4k"),
                      .space = {}};
  problem.workload.global_batch_samples = 64;
  problem.workload.tokens = Distribution::constant(1024);
  problem.space.tp = {.values = {8}};
  const Plan plan = plan_without_settings(problem.model, problem.cluster, problem.workload);
  const auto search = [&](const PlanSpace& space, const PlanSearchOptions& options) {
    return *search_plans(problem.model, problem.cluster, problem.workload, space, options);
  };
  for (const bool improves : {false, true}) {
    const PlanSearchOptions options{.memory_margin = 0.08, .improves = improves};
    PlanSearchResult result = search(problem.space, options);
    const Explanation explanation = *explain_plan(problem, result, options);
    int num_proven = 0, num_beyond = 0;
    for (const Alternative& alternative : explanation.alternatives) {
      if (!alternative.best) continue;
      num_proven += alternative.is_proven ? 1 : 0;
      if (is_in(alternative.best->candidate, plan, problem.space)) continue;
      ++num_beyond;
      EXPECT_FALSE(alternative.is_proven) << alternative.names.front();
    }
    EXPECT_EQ(num_beyond > 0, improves);
    if (!improves) {
      EXPECT_GT(num_proven, 0);
      continue;
    }
    // What a pin found is no slower than with a micro-batch beyond the space.
    PlanSpace larger = problem.space;
    larger.zero = {.values = {2}};
    larger.mbs = {.values = {32}};
    const double large_ms = search(larger, {.memory_margin = 0.08}).best.front().step_time_ms;
    for (const Alternative& alternative : explanation.alternatives) {
      if (std::count(alternative.names.begin(), alternative.names.end(), "zero 2") == 0) continue;
      EXPECT_LE(alternative.best->step_time_ms, large_ms * (1 + 1e-9));
    }
  }
}

TEST(ExplainPlan, WhatIsFasterThanAnUnprovenResultIsTakenOver) {
  PlanProblem problem{.model = *kScenarios.model("llama3-70b"),
                      .cluster = *kScenarios.cluster("dgx_h100"),
                      .workload = *kScenarios.workload("text_4k"),
                      .space = {}};
  problem.cluster.nodes = 4;
  // Settled for what fits.
  PlanSearchResult result = *search_plans(problem.model, problem.cluster, problem.workload, problem.space,
                                          {.time_limit_s = 0, .top = 2, .within = 0.02});
  ASSERT_FALSE(result.best.empty());
  const double settled_ms = result.best.front().step_time_ms;
  const Explanation explanation = *explain_plan(problem, result, {.time_limit_s = 60, .top = 2, .within = 0.02});
  EXPECT_GT(explanation.faster_by, 0);
  EXPECT_NEAR(result.best.front().step_time_ms, settled_ms * (1 - explanation.faster_by), 1e-9 * settled_ms);
  ASSERT_EQ(result.best.size(), 2u);
  EXPECT_LE(result.best[0].step_time_ms, result.best[1].step_time_ms);
  const FoundPlan& chosen = *result.chosen;
  EXPECT_LE(chosen.step_time_ms, result.best.front().step_time_ms * 1.02 * (1 + 1e-9));
  for (const Alternative& alternative : explanation.alternatives) {
    if (!alternative.best) continue;
    EXPECT_GE(alternative.best->step_time_ms, result.best.front().step_time_ms * (1 - 1e-9))
        << alternative.names.front();
    EXPECT_NEAR(sum_ms(alternative.parts), alternative.best->step_time_ms - chosen.step_time_ms,
                1e-6 * chosen.step_time_ms)
        << alternative.names.front();
  }
  for (const WhatIf& what_if : explanation.what_ifs) {
    if (what_if.change == "twice the global batch") continue;  // another problem, whose search may find less
    EXPECT_GE(what_if.throughput_gain, -1e-9) << what_if.change;
  }
}

}  // namespace
}  // namespace weft::explain_plan_test
