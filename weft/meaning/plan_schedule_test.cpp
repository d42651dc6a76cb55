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

// EF of a frozen encoder waits until the llm has read rows before, which a schedule takes to be at F of stage 0.
TEST(PlanSchedule, MacroBatchesThatWaitToBeReadHaveNoBoundWhereTheLlmBeginsLater) {
  Plan plan = *read_plan_file(kShippedPlans + "qwen2.5-vl-7b_disjoint_stream.json");
  const auto bound = [&](EncoderForm form, bool is_frozen, bool from_inputs) {
    ModulePlan& encoder = plan.modules.front();
    encoder.form = form;
    encoder.live_macro_batches = 3;
    encoder.recompute_from_inputs = from_inputs;
    plan.workload.frozen = is_frozen ? std::vector{encoder.kind} : std::vector<ModuleKind>();
    return encoder_placements(plan)->front().rows.live_macro_batches;
  };
  for (const EncoderForm form : {EncoderForm::kFill, EncoderForm::kStream}) {
    for (const bool is_frozen : {false, true}) {
      for (const bool from_inputs : {false, true}) EXPECT_EQ(bound(form, is_frozen, from_inputs), 3);
    }
  }
  EXPECT_EQ(bound(EncoderForm::kBefore, false, false), 0);
  // An inline encoder has the llm's first stage for itself.
  ModulePlan audio = plan.llm();
  audio.kind = ModuleKind::kAudio;
  audio.placement = ModulePlacement::kInline;
  for (size_t stage = 0; stage < audio.layers.size(); ++stage) audio.layers[stage] = {stage == 0 ? 4 : 0};
  plan.modules.insert(plan.modules.begin() + 1, audio);
  plan.modules.back().layers.front() = {0};
  EXPECT_EQ(bound(EncoderForm::kStream, false, false), 3) << "the order of EF and EB bounds them";
  EXPECT_EQ(bound(EncoderForm::kStream, false, true), 3) << "as it does here";
  EXPECT_EQ(bound(EncoderForm::kFill, false, false), 3);
  EXPECT_EQ(bound(EncoderForm::kFill, false, true), 0);
  EXPECT_EQ(bound(EncoderForm::kFill, true, false), 0);
  EXPECT_EQ(bound(EncoderForm::kStream, true, false), 0);
}

}  // namespace
}  // namespace weft
