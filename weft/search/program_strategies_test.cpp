#include "weft/search/program_strategies.h"

#include <gtest/gtest.h>

#include "tests/support/program/two_products.h"
#include "tests/support/source_tree.h"
#include "weft/base/file.h"
#include "weft/meaning/check.h"
#include "weft/plan/plan_json.h"
#include "weft/simulate/plan_simulator.h"
#include "weft/spec/model_reader.h"
#include "weft/spec/scenario.h"

namespace weft::program_strategies_test {
namespace {

const Scenarios kScenarios(source_tree().string() + "/scenarios");

Model program_model(const std::string& text) {
  auto model = read_model({.source = "program", .root = {{"model_type", kProgramFamily}, {kProgramKey, text}}}, "own");
  WEFT_CHECK(model.ok(), "{}", model.error().message());
  return *std::move(model);
}

/// Two narrow products of many rows: gathering what each rank has made of its rows moves half of what a sum does.
std::string narrow_program() {
  return two_products_program({.samples = 4, .rows = 4096, .width = 1024, .inner = 1024, .layers = 4});
}

PlanProblem problem_of(Model model, int64_t samples, int64_t tp) {
  PlanProblem problem{.model = std::move(model), .cluster = {}, .workload = {}, .space = {}};
  problem.cluster = *kScenarios.cluster("dgx_h100", 1);
  problem.workload = *kScenarios.workload("text_4k");
  problem.workload.global_batch_samples = samples;
  problem.workload.tokens =
      Distribution::constant(static_cast<double>(problem.model.numbers.program->rows.rows_per_sample));
  problem.workload.tokens_include_media = true;
  problem.space.tp = {.values = {tp}};
  problem.space.mbs = {.values = {1, 4}};
  return problem;
}

PlanSearchResult searched(const PlanProblem& problem, const PlanSearchOptions& options = {}) {
  auto result = search_plans(problem.model, problem.cluster, problem.workload, problem.space, options);
  WEFT_CHECK(result.ok(), "{}", result.error().message());
  return *std::move(result);
}

TEST(ProgramStrategySearch, TakesOverWhatIsFasterAndSaysByHowMuch) {
  const PlanProblem problem = problem_of(program_model(narrow_program()), 32, 8);
  PlanSearchResult result = searched(problem);
  const double usual_ms = result.best.front().step_time_ms;
  const auto gain = improve_by_strategies(problem, {}, result);
  ASSERT_TRUE(gain.ok()) << gain.error().message();
  ASSERT_TRUE(gain->has_value());
  EXPECT_EQ((*gain)->usual_ms, usual_ms);
  EXPECT_LT((*gain)->ms, usual_ms);
  EXPECT_EQ((*gain)->ms, result.best.front().step_time_ms);
  // The plan stands alone: read back, it is legal and takes as long as was said.
  const Plan& plan = result.best.front().plan;
  EXPECT_EQ(strategy_of(plan), (*gain)->strategy);
  const Result<Plan> read = read_plan({.source = "plan.json", .root = plan_to_json(plan)});
  ASSERT_TRUE(read.ok()) << read.error().message();
  EXPECT_TRUE(check_plan(*read).empty());
  EXPECT_NEAR(simulate_plan(*read, {})->step_time_ms, (*gain)->ms, 1e-9 * usual_ms);
  // Without the strategy the same plan takes longer.
  Json bare = plan_to_json(plan);
  bare["modules"]["llm"].erase("strategy");
  EXPECT_GT(simulate_plan(*read_plan({.source = "plan.json", .root = bare}), {})->step_time_ms, (*gain)->ms);
}

TEST(ProgramStrategySearch, NeverMakesAPlanSlower) {
  for (const char* file : {"encoder.txt", "regression.txt"}) {
    const std::string text = *read_file(source_tree() / "docs/manual" / file, 1 << 20);
    for (const int64_t tp : {1, 2, 4}) {
      SCOPED_TRACE(std::string(file) + " tp " + std::to_string(tp));
      PlanProblem problem = problem_of(program_model(text), 64, tp);
      PlanSearchResult result = searched(problem);
      ASSERT_FALSE(result.best.empty());
      const double usual_ms = result.best.front().step_time_ms;
      const auto gain = improve_by_strategies(problem, {}, result);
      ASSERT_TRUE(gain.ok()) << gain.error().message();
      EXPECT_LE(result.best.front().step_time_ms, usual_ms);
      EXPECT_EQ(gain->has_value(), !result.best.front().plan.llm().strategy.is_empty());
      EXPECT_NEAR(simulate_plan(result.best.front().plan, {})->step_time_ms, result.best.front().step_time_ms,
                  1e-9 * usual_ms);
    }
  }
}

PlanProblem family_problem(const char* model, const char* cluster, int64_t tp) {
  PlanProblem problem{.model = *kScenarios.model(model), .cluster = {}, .workload = {}, .space = {}};
  problem.cluster = *kScenarios.cluster(cluster, 1);
  problem.workload = *kScenarios.workload("text_4k");
  problem.workload.global_batch_samples = 64;
  problem.space.tp = {.values = {tp}};
  problem.space.cp = {.values = {1}};
  problem.space.mbs = {.values = {1, 4}};
  return problem;
}

TEST(ProgramStrategySearch, NeverMakesAPlanOfAFamilySlower) {
  int64_t num_gains = 0;
  for (const char* cluster : {"dgx_h100", "dgx_a100_80g"}) {
    for (const int64_t tp : {1, 2, 8}) {
      SCOPED_TRACE(fmt::format("{} tp {}", cluster, tp));
      PlanProblem problem = family_problem("llama3-8b", cluster, tp);
      PlanSearchResult result = searched(problem);
      if (result.best.empty()) continue;
      const double usual_ms = result.best.front().step_time_ms;
      const auto gain = improve_by_strategies(problem, {}, result);
      ASSERT_TRUE(gain.ok()) << gain.error().message();
      EXPECT_LE(result.best.front().step_time_ms, usual_ms);
      const Plan& plan = result.best.front().plan;
      EXPECT_EQ(gain->has_value(), !plan.llm().strategy.is_empty());
      num_gains += gain->has_value() ? 1 : 0;
      // The plan stands alone: read back, it is legal and takes as long as was said.
      const Result<Plan> read = read_plan({.source = "plan.json", .root = plan_to_json(plan)});
      ASSERT_TRUE(read.ok()) << read.error().message();
      EXPECT_TRUE(check_plan(*read).empty());
      EXPECT_NEAR(simulate_plan(*read, {})->step_time_ms, result.best.front().step_time_ms, 1e-9 * usual_ms);
    }
  }
  EXPECT_GT(num_gains, 0);
}

TEST(ProgramStrategySearch, OfAFamilyDoesNotDependOnHowLongTheSearchTook) {
  PlanProblem problem = family_problem("llama3-8b", "dgx_h100", 8);
  const auto improved = [&](double spent_s) {
    PlanSearchResult result = searched(problem);
    const auto gain = improve_by_strategies(problem, {}, result, spent_s);
    WEFT_CHECK(gain.ok() && gain->has_value(), "no strategy is faster");
    return std::pair(result.best.front().step_time_ms, (*gain)->num_tried);
  };
  EXPECT_EQ(improved(1e-6), improved(1));
}

TEST(ProgramStrategySearch, OfAFamilyLeavesWhatWasProvenAsItIs) {
  const PlanProblem problem = family_problem("llama3-8b", "dgx_h100", 8);
  const PlanSearchOptions options{.top = 3};
  PlanSearchResult result = searched(problem, options);
  const PlanSearchResult usual = result;
  ASSERT_TRUE(usual.is_optimal);
  ASSERT_GE(usual.best.size(), 2u);
  const auto gain = improve_by_strategies(problem, options, result);
  ASSERT_TRUE(gain.ok() && gain->has_value());
  // Of strategies nothing is proven.
  EXPECT_FALSE(result.is_optimal);
  ASSERT_TRUE((*gain)->usual);
  EXPECT_TRUE((*gain)->usual->is_optimal);
  EXPECT_EQ((*gain)->usual->bound_ms, usual.bound_ms);
  // Plans without one are still among the fastest.
  ASSERT_EQ(result.best.size(), 3u);
  EXPECT_FALSE(strategy_of(result.best.front().plan).empty());
  for (size_t i = 1; i < result.best.size(); ++i)
    EXPECT_LE(result.best[i - 1].step_time_ms, result.best[i].step_time_ms);
  const auto is_usual = [&](const FoundPlan& found) { return found.step_time_ms == usual.best.front().step_time_ms; };
  EXPECT_EQ(std::count_if(result.best.begin(), result.best.end(), is_usual), 1);
}

// A step with fewer samples than devices leaves large models tensor-parallel, whatever the space allows.
TEST(ProgramStrategySearch, GainsWhereAStepHasFewSamplesForItsDevices) {
  PlanProblem problem{.model = *kScenarios.model("llama3-70b"), .cluster = {}, .workload = {}, .space = {}};
  problem.cluster = *kScenarios.cluster("dgx_h100", 128);
  problem.workload = *kScenarios.workload("text_4k");
  // With ZB-V the usual plan is faster, and a strategy gains less.
  std::erase(problem.space.schedules, ScheduleName::kZbV);
  PlanSearchResult result = searched(problem);
  ASSERT_FALSE(result.best.empty());
  const double usual_ms = result.best.front().step_time_ms;
  const auto gain = improve_by_strategies(problem, {}, result);
  ASSERT_TRUE(gain.ok()) << gain.error().message();
  ASSERT_TRUE(gain->has_value());
  EXPECT_LT(result.best.front().step_time_ms, 0.99 * usual_ms);
  EXPECT_TRUE(check_plan(result.best.front().plan).empty());
}

TEST(ProgramStrategySearch, OffersStrategiesThatRulesAllow) {
  const Model model = program_model(*read_file(source_tree() / "docs/manual/encoder.txt", 1 << 20));
  const Cluster cluster = *kScenarios.cluster("dgx_h100", 1);
  for (const int64_t tp : {2, 4, 8}) {
    const auto offered = offered_strategies(model, cluster, Precision::kBf16, AttentionKernel::kFused, tp, 4);
    ASSERT_TRUE(offered.ok()) << offered.error().message();
    EXPECT_FALSE(offered->empty());
    for (const ModuleStrategy& strategy : *offered) {
      EXPECT_EQ(strategy.mesh, (std::vector<Axis>{{"tp", tp}}));
      EXPECT_TRUE(with_strategy(model.modules.back(), strategy.blocks, tp).ok());
    }
  }
}

}  // namespace
}  // namespace weft::program_strategies_test
