#include "weft/cost/apply_profile.h"

#include <gtest/gtest.h>

#include "tests/support/cost/example_plan.h"
#include "weft/base/as_double.h"
#include "weft/base/units.h"
#include "weft/cost/cost_model.h"

namespace weft::apply_profile_test {
namespace {

Plan example_plan(int64_t vpp = 1) {
  Plan plan = text_plan(gpt_model({.layers = 4}), ideal_cluster(1, 2), {.pp = 2, .vpp = vpp}, 512, {.microbatches = 4});
  plan.cluster.device.memory_bandwidth_gb_per_s = 1000;
  return plan;
}

std::vector<StageCost> stages_of(const Plan& plan) {
  PlanCosts costs;
  CostModel model = *CostModel::create(plan);
  model.price(plan, costs);
  return costs.stages;
}

TEST(ApplyProfile, UpdatesTakeSoMuchAStepAndSoMuchAnElement) {
  Plan plan = example_plan();
  Profile profile;
  for (const double elements : {1e5, 1e7, 1e9})
    profile.updates.push_back({.elements = elements, .ms = 2 + elements * 3e-6});
  const MachineSource source = apply_profile(profile, plan);
  EXPECT_EQ(source.update_points, 3);
  EXPECT_LT(source.update_error_percent, 1e-6);
  const double elements = as_double(num_parameters(plan.model.modules[0].distinct_layers[0])) * 2;
  const std::vector<StageCost> stages = stages_of(plan);
  const Plan without = example_plan();
  // Two layers and the embedding on the first stage.
  EXPECT_GT(stages[0].update_ms, 2 + elements * 3e-6);
  EXPECT_GT(stages[0].update_ms, stages_of(without)[0].update_ms);
  // On each rank once, however many stages it has.
  plan = example_plan(2);
  profile.step_ms = 5;
  profile.updates.clear();
  const std::vector<StageCost> before = stages_of(plan);
  apply_profile(profile, plan);
  const std::vector<StageCost> after = stages_of(plan);
  ASSERT_EQ(after.size(), 4u);
  for (size_t i = 0; i < after.size(); ++i) EXPECT_NEAR(after[i].update_ms - before[i].update_ms, 2.5, 1e-9);
}

TEST(ApplyProfile, TheExecutorsTimeIsThereWithoutAPipelineToo) {
  Plan plan = text_plan(gpt_model({.layers = 4}), ideal_cluster(1, 1), {}, 512, {.microbatches = 4});
  const double before = stages_of(plan)[0].forward_ms();
  Profile profile;
  profile.action_ms = 0.7;
  EXPECT_TRUE(apply_profile(profile, plan).has_action);
  EXPECT_NEAR(stages_of(plan)[0].forward_ms() - before, 0.7, 1e-9);
}

TEST(ApplyProfile, MemoryIsTheDevicesOwnAndNothingIsAddedWhereAllBytesWereMeasured) {
  Plan plan = example_plan();
  Profile profile;
  profile.reserved_bytes = 2 * kGiB;
  EXPECT_FALSE(apply_profile(profile, plan).has_memory);
  EXPECT_NEAR(plan.cluster.device.reserved_memory_gib, 2, 1e-12);
  EXPECT_EQ(plan.cluster.measured.allocator_rounding, kAllocatorRounding);
  for (const char* block : {"embedding", "layer", "head"})
    profile.blocks.push_back({.shape = {.block = block}, .backward_peak_bytes = 1});
  EXPECT_TRUE(apply_profile(profile, plan).has_memory);
  EXPECT_EQ(plan.cluster.measured.allocator_rounding, 0);
}

TEST(ApplyProfile, OfNothingChangesNothing) {
  Plan plan = example_plan();
  const std::vector<StageCost> before = stages_of(plan);
  const MachineSource source = apply_profile({}, plan);
  EXPECT_TRUE(source.links.empty() && source.warnings.empty());
  EXPECT_EQ(stages_of(plan)[0].update_ms, before[0].update_ms);
  EXPECT_EQ(stages_of(plan)[0].forward_ms(), before[0].forward_ms());
}

}  // namespace
}  // namespace weft::apply_profile_test
