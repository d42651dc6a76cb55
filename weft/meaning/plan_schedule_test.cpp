#include "weft/meaning/plan_schedule.h"

#include <gtest/gtest.h>

#include "tests/support/source_tree.h"
#include "weft/plan/plan_json.h"

namespace weft {
namespace {

const std::string kShippedPlans = source_tree().string() + "/scenarios/plans/";

TEST(PlanSchedule, RowsAreThePipelinesRanksAndThenTheEncodersOwnStages) {
  const auto schedule = [](const std::string& name) {
    return *schedule_of(*read_plan_file(kShippedPlans + name + ".json"));
  };
  EXPECT_EQ(schedule("qwen2.5-vl-7b_disjoint_stream").num_ranks(), 4) << "pp 2 and the encoder's pp 2";
  const Schedule partial = schedule("qwen2-vl-7b_partial");
  EXPECT_EQ(partial.encoders[0].groups, (std::vector<std::vector<int32_t>>{{3}})) << "the last pipeline rank";
  EXPECT_FALSE(partial.encoders[0].is_trained) << "the workload freezes it";
  EXPECT_EQ(schedule("qwen2-vl-7b_inline").encoders.size(), 0u);
  EXPECT_EQ(schedule("qwen2.5-omni-7b_colocated_dp8").encoders.size(), 2u);
  EXPECT_EQ(schedule("qwen2.5-omni-7b_colocated_dp8").encoders[0].num_macro_batches, 2)
      << "4 · 8 / 2 = 16 microbatches each, of 32";
}

// Gathered values and scattered gradients have data-parallel ranks wait for each other in the middle of an action.
TEST(PlanSchedule, RowsOfAnEncoderWithZero2MeetWhereBubblesAreFilled) {
  Plan plan = *read_plan_file(kShippedPlans + "qwen2.5-vl-7b_colocated_fill.json");
  const auto pp = static_cast<size_t>(plan.llm().pp);
  const auto groups = [&](int64_t zero, EncoderForm form) {
    plan.modules.front().zero = zero;
    plan.modules.front().form = form;
    return encoder_placements(plan)->front().rows.groups;
  };
  ASSERT_GT(pp, 1u);
  for (const int64_t zero : {0, 1}) EXPECT_EQ(groups(zero, EncoderForm::kFill).size(), pp);
  for (const int64_t zero : {2, 3}) {
    ASSERT_EQ(groups(zero, EncoderForm::kFill).size(), 1u);
    EXPECT_EQ(groups(zero, EncoderForm::kFill).front().size(), pp);
    EXPECT_EQ(groups(zero, EncoderForm::kBefore).size(), pp) << "all rows have the same order";
  }
}

}  // namespace
}  // namespace weft
