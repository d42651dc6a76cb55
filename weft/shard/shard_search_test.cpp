#include "weft/shard/shard_search.h"

#include <gtest/gtest.h>

#include "tests/support/draws.h"
#include "tests/support/shard/random_problem.h"
#include "weft/program/program_builder.h"

namespace weft {
namespace {

TEST(ShardSearch, ExactIsAsFastAsTheBestOfAllStrategies) {
  const int count = draws(kIsSanitized ? 60 : 1000);
  for (int seed = 0; seed < count; ++seed) {
    std::mt19937_64 random(static_cast<uint64_t>(seed));
    const ShardProblem problem = random_problem(random, 600, seed % 3 == 2);
    double least = std::numeric_limits<double>::infinity();
    for_each_strategy(problem, [&](const ShardAssignment& assignment) {
      // A value that leaves a repeat and the program is no summand.
      least = std::min(least, evaluate(problem, assignment).ms());
    });
    const Result<ShardSolution> found = search_strategy(problem, {});
    ASSERT_TRUE(found) << seed << ": " << found.error().message();
    EXPECT_TRUE(found->is_optimal);
    EXPECT_NEAR(found->totals.ms(), least, 1e-9 * least) << "seed " << seed;
  }
}

TEST(ShardSearch, UnderAMemoryLimitExactIsAsFastAsTheBestThatFits) {
  const int count = draws(kIsSanitized ? 20 : 200);
  int tight = 0;
  for (int seed = 0; seed < count; ++seed) {
    std::mt19937_64 random(static_cast<uint64_t>(seed) + 5000);
    const ShardProblem problem = random_problem(random, 500, false);
    double fewest = std::numeric_limits<double>::infinity();
    for_each_strategy(problem, [&](const ShardAssignment& assignment) {
      fewest = std::min(fewest, evaluate(problem, assignment).bytes());
    });
    const Result<ShardSolution> free = search_strategy(problem, {});
    ASSERT_TRUE(free);
    // Between what one needs at least and what the fastest takes.
    const double share = static_cast<double>(random() % 1000) / 1000;
    const double limit = fewest + share * std::max(0.0, free->totals.bytes() - fewest) + 1;
    double least = std::numeric_limits<double>::infinity();
    for_each_strategy(problem, [&](const ShardAssignment& assignment) {
      const ShardTotals totals = evaluate(problem, assignment);
      if (totals.bytes() <= limit) least = std::min(least, totals.ms());
    });
    const Result<ShardSolution> found = search_strategy(problem, {.memory_bytes = limit});
    ASSERT_TRUE(found) << seed << ": " << found.error().message();
    EXPECT_LE(found->totals.bytes(), limit);
    EXPECT_TRUE(found->is_optimal) << seed;
    EXPECT_NEAR(found->totals.ms(), least, 1e-8 * least) << "seed " << seed;
    tight += least > free->totals.ms() * (1 + 1e-9);
    // Where nothing fits, the least that would do is named.
    if (fewest == 0) continue;
    const Result<ShardSolution> none = search_strategy(problem, {.memory_bytes = fewest * 0.9});
    ASSERT_FALSE(none);
    EXPECT_EQ(none.error().kind, ErrorKind::kJob);
  }
  EXPECT_GT(tight, count / 4);
}

TEST(ShardSearch, WhereTheSearchGivesUpTheGapHolds) {
  const int count = draws(kIsSanitized ? 10 : 60);
  for (int seed = 0; seed < count; ++seed) {
    std::mt19937_64 random(static_cast<uint64_t>(seed) + 9000);
    const ShardProblem problem = random_problem(random, 400, false);
    const Result<ShardSolution> free = search_strategy(problem, {});
    const double limit = free->totals.bytes() * 0.8;
    double least = std::numeric_limits<double>::infinity();
    for_each_strategy(problem, [&](const ShardAssignment& assignment) {
      const ShardTotals totals = evaluate(problem, assignment);
      if (totals.bytes() <= limit) least = std::min(least, totals.ms());
    });
    const Result<ShardSolution> found = search_strategy(problem, {.memory_bytes = limit, .most_nodes = 0});
    ASSERT_EQ(found.ok(), least < std::numeric_limits<double>::infinity());
    if (!found) continue;
    EXPECT_LE(found->bound_ms, least * (1 + 1e-9)) << seed;
    EXPECT_GE(found->totals.ms(), least * (1 - 1e-9)) << seed;
  }
}

TEST(ShardSearch, LayersOfARepeatAreAsGoodAsWrittenOut) {
  // A memory limit makes layers differ; the bound holds, and what is found fits. Pareto points prove most.
  int tight = 0, proven = 0;
  for (int seed = 0; seed < (kIsSanitized ? 5 : 40); ++seed) {
    std::mt19937_64 random(static_cast<uint64_t>(seed) + 700);
    const ShardProblem problem = random_problem(random, 800, true);
    const Result<ShardSolution> free = search_strategy(problem, {});
    const double limit = free->totals.bytes() * 0.85;
    double least = std::numeric_limits<double>::infinity();
    for_each_strategy(problem, [&](const ShardAssignment& assignment) {
      const ShardTotals totals = evaluate(problem, assignment);
      if (totals.bytes() <= limit) least = std::min(least, totals.ms());
    });
    const Result<ShardSolution> found = search_strategy(problem, {.memory_bytes = limit});
    if (!found) continue;
    EXPECT_LE(found->totals.bytes(), limit);
    EXPECT_LE(found->bound_ms, least * (1 + 1e-9)) << seed;
    EXPECT_GE(found->totals.ms(), least * (1 - 1e-9)) << seed;
    ++tight;
    if (!found->is_optimal) continue;
    ++proven;
    EXPECT_NEAR(found->totals.ms(), least, 1e-8 * least) << seed;
  }
  EXPECT_GE(proven, tight * 9 / 10);
}

TEST(ShardSearch, OtherSearchesAreNeverFasterThanTheExactOne) {
  for (int seed = 0; seed < (kIsSanitized ? 10 : 100); ++seed) {
    std::mt19937_64 random(static_cast<uint64_t>(seed) + 400);
    const ShardProblem problem = random_problem(random, 1e6, seed % 2 == 0);
    const Result<ShardSolution> exact = search_strategy(problem, {});
    ASSERT_TRUE(exact);
    for (const ShardSearch search : {ShardSearch::kRecursive, ShardSearch::kPropagate}) {
      const Result<ShardSolution> found = search_strategy(problem, {.search = search});
      ASSERT_TRUE(found) << found.error().message();
      EXPECT_GE(found->totals.ms(), exact->totals.ms() * (1 - 1e-9));
      EXPECT_NEAR(found->bound_ms, exact->totals.ms(), 1e-9 * found->bound_ms);
    }
  }
}

TEST(ShardSearch, AxisAfterAxisWorksWhereAllTogetherAreTooMany) {
  // Four operators read one value: a table of five choices on three axes.
  ProgramBuilder code("wide");
  code.dim("b", 8), code.dim("s", 64), code.dim("h", 64);
  const size_t x = code.add(OperatorKind::kScale, "x", "b s h -> b s h", {code.input("in", "b s h")});
  for (const char* name : {"p", "q", "r", "t"})
    code.norm(name, "b s h, h -> b s h", {x, code.weight(std::string(name) + ".w", "h")});
  const Program program = *code.finish();
  const std::vector<Axis> axes{{"a", 2}, {"b", 2}, {"c", 2}};
  const Cluster cluster = small_cluster(2, 4);
  const ShardSetting setting{.cluster = cluster, .links = *AxisLinks::create(axes, cluster)};
  const ShardProblem problem = *ShardProblem::create(program, setting, ShardLimits::none(program, axes.size()));
  ASSERT_FALSE(search_strategy(problem, {}));
  const Result<ShardSolution> found = search_strategy(problem, {.search = ShardSearch::kRecursive});
  ASSERT_TRUE(found) << found.error().message();
  EXPECT_FALSE(found->is_optimal);
  EXPECT_GT(found->bound_ms, 0);
  EXPECT_LE(found->bound_ms, found->totals.ms());
}

TEST(ShardSearch, ADomainLeavesOutWhatItDoesNotHave) {
  for (int seed = 0; seed < (kIsSanitized ? 10 : 100); ++seed) {
    std::mt19937_64 random(static_cast<uint64_t>(seed) + 60);
    const ShardProblem problem = random_problem(random, 1e6, seed % 2 == 0);
    AllowedOptions domain = all_allowed(problem);
    for (std::vector<uint64_t>& options : domain.states) {
      for (size_t option = 1; option < options.size(); ++option) {
        if (random() % 2 == 0) options[option] = 0;
      }
    }
    const auto whole = ShardSolver(problem).solve(0, domain);
    const auto narrow = ShardSolver(problem, domain).solve(0, domain);
    ASSERT_EQ(whole.has_value(), narrow.has_value()) << seed;
    if (!whole) continue;
    EXPECT_NEAR(whole->cost, narrow->cost, 1e-12 * whole->cost) << seed;
  }
}

}  // namespace
}  // namespace weft
