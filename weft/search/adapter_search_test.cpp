// Plans for models of which adapters alone are trained.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/support/draws.h"
#include "tests/support/search/brute_force.h"
#include "tests/support/spec/random_adapters.h"

namespace weft::adapter_search_test {
namespace {

using namespace search_tests;

Model adapted(const Model& model, const std::vector<std::string>& targets, int64_t rank = 16) {
  auto with = with_adapters(model, {{.targets = targets, .rank = rank, .alpha = 16}}, "test");
  WEFT_CHECK(with.ok(), "{}", with.error().message());
  return *std::move(with);
}

TEST(AdapterSearch, FindsWhatBruteForceFindsAndProvesIt) {
  // All layers, those of one module, and such that the backward ends inside a module.
  const std::vector<std::vector<std::string>> kinds = {
      {"*"}, {"*.layers.*"}, {"visual.*"}, {"*.layers.2.*", "*.layers.3.mlp.*"}};
  int num_feasible = 0, num_infeasible = 0;
  for (const int64_t devices : {1, 2, 4}) {
    for (const double gib : {0.2, 0.26, 0.32, 0.6}) {
      for (size_t kind = 0; kind < kinds.size(); ++kind) {
        if (kIsSanitized && (devices == 4 || kind % 2 == 1)) continue;
        const ScheduleName schedule = kind % 2 == 0 ? ScheduleName::k1f1b : ScheduleName::kZbH1;
        const std::string where = fmt::format("{} devices of {} GiB, {}", devices, gib, kinds[kind].front());
        PlanProblem problem = tiny_problem(devices, gib);
        problem.model = adapted(problem.model, kinds[kind]);
        problem.space.schedules = {schedule};
        const double truth = BruteForce(problem).best_ms();
        const PlanSearchResult result = search(problem);
        if (result.best.empty()) {
          EXPECT_EQ(truth, std::numeric_limits<double>::infinity()) << where;
          ++num_infeasible;
          continue;
        }
        ++num_feasible;
        EXPECT_TRUE(result.is_optimal) << where << ", gap " << result.gap();
        EXPECT_NEAR(result.best.front().step_time_ms, truth, 1e-9 * truth) << where;
      }
    }
  }
  EXPECT_GE(num_feasible, kIsSanitized ? 3 : 12);
  EXPECT_GE(num_infeasible, kIsSanitized ? 0 : 2);
}

TEST(AdapterSearch, BoundsDropNothingThatCouldWinInProblemsAtRandom) {
  RandomProblems problems(13);
  int num_compared = 0;
  const int num_problems = kIsSanitized ? 30 : draws(100);
  for (int i = 0; i < num_problems; ++i) {
    PlanProblem problem = problems.next();
    problem.space.frozen = std::vector<ModuleKind>();
    // Weights take less, so that memory is short for less, too.
    problem.cluster.device.memory_gib *= i % 2 == 0 ? 0.3 : 1;
    problem.cluster.device.reserved_memory_gib =
        std::min(problem.cluster.device.reserved_memory_gib, problem.cluster.device.memory_gib / 4);
    problem.model = with_drawn_adapters(problem.model, static_cast<uint64_t>(i));
    expect_nothing_to_be_dropped(
        problem, fmt::format("problem {}, {} {}", i, problem.model.name, to_json(adapters_of(problem.model)).dump()),
        num_compared);
  }
  EXPECT_GE(num_compared, num_problems / 3);
}

PlanProblem text_problem(const char* model) {
  PlanProblem problem{.model = *test_scenarios().model(model),
                      .cluster = *test_scenarios().cluster("dgx_h100"),
                      .workload = *test_scenarios().workload("text_4k"),
                      .space = {}};
  problem.cluster.nodes = 1;
  problem.cluster.devices_per_node = 8;
  problem.workload.global_batch_samples = 64;
  return problem;
}

TEST(AdapterSearch, FindsPlansWhereFullTrainingHasNoRoom) {
  PlanProblem problem = text_problem("llama3-70b");
  EXPECT_TRUE(search(problem).best.empty()) << "the states of full training fit";
  problem.model = adapted(problem.model, {"*.layers.*"});
  EXPECT_FALSE(search(problem).best.empty());
}

TEST(AdapterSearch, FindsFasterStepsThanForFullTraining) {
  PlanProblem problem = text_problem("llama3-8b");
  const PlanSearchResult full = search(problem);
  problem.model = adapted(problem.model, {"*.layers.*"});
  const PlanSearchResult low_rank = search(problem);
  ASSERT_FALSE(full.best.empty());
  ASSERT_FALSE(low_rank.best.empty());
  EXPECT_TRUE(low_rank.is_optimal) << low_rank.gap();
  // Of three products one is left out, but adapters read and write every output twice more.
  const double ratio = low_rank.best.front().step_time_ms / full.best.front().step_time_ms;
  EXPECT_LT(ratio, 1);
  EXPECT_GT(ratio, 0.55);
}

}  // namespace
}  // namespace weft::adapter_search_test
