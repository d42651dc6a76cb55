#include "weft/search/least_states.h"

#include <gtest/gtest.h>

#include "tests/support/draws.h"
#include "tests/support/search/brute_force.h"
#include "weft/base/units.h"
#include "weft/meaning/plan_schedule.h"

namespace weft::least_states_test {
namespace {

using namespace search_tests;

/// The problem as searches have it.
Plan without_settings(const PlanProblem& problem) {
  Workload workload = problem.workload;
  if (problem.space.frozen) workload.frozen = *problem.space.frozen;
  return plan_without_settings(problem.model, problem.cluster, std::move(workload));
}

double fullest_gib(const Plan& plan) {
  PlanSimulator simulator = *PlanSimulator::create(plan);
  double most = 0;
  for (const MemorySplit& row : simulator.run_mean(plan, *playable_schedule(plan)).memory)
    most = std::max(most, row.total());
  return most / kGiB - plan.cluster.device.reserved_memory_gib;
}

TEST(LeastStates, NoPlanHoldsLess) {
  RandomProblems problems(61, /*has_own_settings=*/true);
  int num_plans = 0, num_close = 0;
  for (int i = 0; i < (kIsSanitized ? 8 : draws(40)); ++i) {
    const PlanProblem problem = problems.next();
    Plan plan = without_settings(problem);
    const double least_gib = least_states_gib(plan);
    const std::vector<Candidate> frames = enumerate_frames(plan, problem.space);
    for (size_t f = 0; f < frames.size(); f += 1 + frames.size() / 8) {
      const std::vector<Candidate> all = enumerate_candidates(frames[f], choices_of(frames[f], plan, problem.space));
      for (size_t c = 0; c < all.size(); c += 1 + all.size() / 8) {
        fill_plan(all[c], plan);
        if (!check_plan(plan, PlanUse::kPrice).empty()) continue;
        ++num_plans;
        const double held_gib = fullest_gib(plan);
        EXPECT_GE(held_gib, least_gib) << "problem " << i << ", " << problem.model.name << ": " << all[c].text(plan);
        num_close += held_gib < 2 * least_gib ? 1 : 0;
      }
    }
  }
  EXPECT_GE(num_plans, kIsSanitized ? 50 : 300);
  EXPECT_GE(num_close, num_plans / 20) << "of " << num_plans;
}

TEST(LeastStates, AreOfTheWeightsThatAreTrained) {
  PlanProblem problem = tiny_problem(4, 1);
  const double all_gib = least_states_gib(without_settings(problem));
  problem.space.frozen = {ModuleKind::kVision};
  const double some_gib = least_states_gib(without_settings(problem));
  const auto frozen = static_cast<double>(num_parameters(*problem.model.find(ModuleKind::kVision)));
  // Gradients, both moments and the master weights are in fp32.
  EXPECT_NEAR(all_gib - some_gib, frozen * 16 / 4 / kGiB, 1e-9);
}

TEST(LeastStates, SayThatNothingFitsWhereASearchWithoutThemFindsNothing) {
  for (const double gib : {0.24, 0.26, 0.28, 0.32}) {
    const PlanProblem problem = tiny_problem(2, gib);
    if (!exceeds_all_devices(without_settings(problem))) continue;
    const SearchBounds none{.work = false, .schedule = false, .placement = false};
    EXPECT_TRUE(search(problem, {.time_limit_s = 1000, .bounds = none}).best.empty()) << gib;
    const PlanSearchResult result = search(problem);
    EXPECT_TRUE(result.best.empty());
    EXPECT_EQ(result.counts.over_memory, result.counts.considered) << gib;
    EXPECT_TRUE(search(problem, {.time_limit_s = 1000, .first_only = true}).best.empty()) << gib;
    return;
  }
  FAIL() << "none of these devices is too small for the states alone";
}

}  // namespace
}  // namespace weft::least_states_test
