#include "weft/meaning/routers.h"

#include <gtest/gtest.h>

#include "tests/support/source_tree.h"
#include "weft/plan/plan_json.h"

namespace weft {
namespace {

Plan plan_with_routers(const std::string& name) {
  return *read_plan_file(source_tree().string() + "/scenarios/plans/" + name + ".json");
}

TEST(Routers, AreNumberedByStage) {
  Plan plan = plan_with_routers("qwen3-30b-a3b_zb_h1_ep8");
  const auto pp = static_cast<size_t>(plan.llm().pp);
  ASSERT_GT(pp, 1u);
  const auto layers = static_cast<int64_t>(plan.model.find(ModuleKind::kLlm)->layers.size());
  const Routers routers = routers_of(plan);
  EXPECT_EQ(routers.num_experts, 128);
  EXPECT_EQ(routers.count(), layers) << "every layer has one";
  ASSERT_EQ(routers.first_of_stage.size(), pp + 1);
  for (size_t stage = 0; stage < pp; ++stage) {
    EXPECT_EQ(routers.first_of_stage[stage + 1] - routers.first_of_stage[stage], plan.llm().layers[stage][0]);
  }
  // In layers that are dense there are none.
  Module& llm = plan.model.modules.back();
  Block dense = llm.distinct_layers.front();
  std::erase_if(dense.ops, [](const Op& op) { return op.name == "moe.router"; });
  llm.distinct_layers.push_back(dense);
  llm.layers[0] = llm.distinct_layers.size() - 1;
  EXPECT_EQ(routers_of(plan).count(), layers - 1);
  EXPECT_EQ(routers_of(plan).first_of_stage[1], plan.llm().layers[0][0] - 1);
}

TEST(Routers, ADenseModelHasNone) {
  EXPECT_EQ(routers_of(plan_with_routers("llama3-8b_gpipe_tp2_pp2_dp2")).count(), 0);
}

}  // namespace
}  // namespace weft
