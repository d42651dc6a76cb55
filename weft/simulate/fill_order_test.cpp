#include "weft/simulate/fill_order.h"

#include <gtest/gtest.h>

#include "tests/support/source_tree.h"
#include "weft/meaning/check.h"
#include "weft/plan/plan_json.h"

namespace weft {
namespace {

Plan shipped(const std::string& name) {
  return *read_plan_file(source_tree().string() + "/scenarios/plans/" + name + ".json");
}

TEST(FillOrder, APlanWithoutOneBecomesLegalForAnySizeOfMacroBatches) {
  for (const int64_t scale : {1, 2, 3, 8, 100}) {
    Plan plan = shipped("qwen2.5-vl-7b_colocated_fill");
    plan.modules[0].actions.clear();
    plan.modules[0].live_macro_batches = 1;
    plan.modules[0].mbs_scale = scale;
    ASSERT_FALSE(check_plan(plan).empty());
    PlanSimulator simulator = *PlanSimulator::create(plan);
    const auto error = store_fill_order(simulator, plan);
    ASSERT_FALSE(error.has_value()) << error->message();
    const auto violations = check_plan(plan);
    EXPECT_TRUE(violations.empty()) << scale << ": " << violations.front().message;
  }
}

TEST(FillOrder, HidesEncodersThatWouldRunBeforeThePipeline) {
  Plan fills = shipped("qwen2.5-vl-7b_colocated_fill");
  PlanSimulator simulator = *PlanSimulator::create(fills);
  ASSERT_FALSE(store_fill_order(simulator, fills).has_value());
  Plan before = fills;
  before.modules[0].form = EncoderForm::kBefore;
  before.modules[0].actions.clear();
  EXPECT_LT(simulate_plan(fills, {.batches = 0})->step_time_ms, simulate_plan(before, {.batches = 0})->step_time_ms);
}

TEST(FillOrder, PlansInWhichNothingFillsStayAsTheyAre) {
  const Plan given = shipped("qwen2-vl-7b_colocated_before");
  Plan plan = given;
  PlanSimulator simulator = *PlanSimulator::create(plan);
  EXPECT_FALSE(store_fill_order(simulator, plan).has_value());
  EXPECT_EQ(plan_to_text(plan), plan_to_text(given));
}

}  // namespace
}  // namespace weft
