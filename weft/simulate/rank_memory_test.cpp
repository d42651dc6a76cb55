#include "weft/simulate/rank_memory.h"

#include <gtest/gtest.h>

#include "tests/support/source_tree.h"
#include "weft/plan/plan_json.h"
#include "weft/simulate/plan_simulator.h"

namespace weft {
namespace {

Plan example(const std::string& name) {
  auto plan = read_plan_file(source_tree() / "scenarios/plans" / (name + ".json"));
  WEFT_CHECK(plan.ok(), "{}", plan.error().message());
  return *std::move(plan);
}

TEST(RankMemory, EveryRankHoldsWhatItsRowOfTheScheduleHolds) {
  // By hand: where the ranks of each row lie.
  const Plan plan = example("llama3-8b_gpipe_tp2_pp2_dp2");
  const auto ranks = memory_of_ranks(plan);
  ASSERT_TRUE(ranks.ok());
  const PlanReport report = *simulate_plan(plan, {.batches = 0});
  ASSERT_EQ(ranks->size(), 8u);
  ASSERT_EQ(report.rows.size(), 2u);
  EXPECT_NE(report.rows[0].memory.total(), report.rows[1].memory.total());
  // tp, cp, dp, pp: the first stage is the first half.
  for (size_t rank = 0; rank < 8; ++rank)
    EXPECT_EQ((*ranks)[rank].total(), report.rows[rank / 4].memory.total()) << rank;
}

TEST(RankMemory, EncodersOnRanksOfTheirOwnHoldTheirOwn) {
  const Plan plan = example("qwen2.5-vl-7b_disjoint_stream");
  const ModulePlan& vision = *plan.find(ModuleKind::kVision);
  ASSERT_EQ(vision.placement, ModulePlacement::kDisjoint);
  const auto ranks = memory_of_ranks(plan);
  ASSERT_TRUE(ranks.ok());
  const PlanReport report = *simulate_plan(plan, {.batches = 0});
  // tp, cp, dp, pp here, too: equal shares of its ranks are its stages, whose rows stand behind the llm's.
  ASSERT_EQ(vision.axis_order.back(), "pp");
  const size_t ranks_a_stage = vision.ranks.size() / static_cast<size_t>(vision.pp);
  for (size_t i = 0; i < vision.ranks.size(); ++i) {
    const double held = (*ranks)[static_cast<size_t>(vision.ranks[i])].weights;
    EXPECT_GT(held, 0);
    EXPECT_EQ(held, report.rows[static_cast<size_t>(plan.llm().pp) + i / ranks_a_stage].memory.weights) << i;
  }
  for (const int64_t rank : plan.llm().ranks) EXPECT_GT((*ranks)[static_cast<size_t>(rank)].weights, 0);
}

TEST(RankMemory, IdleRanksHoldNothing) {
  Plan plan = example("tiny-vl_one_rank");
  plan.world_size = 2;
  plan.idle_ranks = true;
  const auto ranks = memory_of_ranks(plan);
  ASSERT_TRUE(ranks.ok());
  EXPECT_GT((*ranks)[0].total(), 0);
  EXPECT_EQ((*ranks)[1].total(), 0);
}

}  // namespace
}  // namespace weft
