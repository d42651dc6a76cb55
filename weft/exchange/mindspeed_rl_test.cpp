#include "tests/support/exchange/plans_to_export.h"

namespace weft {
namespace {

Json actor_of(const Plan& plan) {
  const std::string text = outcome(plan, Target::kMindspeedRl);
  const auto document = parse_document(text, "yaml", Syntax::kYaml);
  return document ? document->root : Json(text);
}

TEST(MindspeedRlExport, WritesTheActor) {
  Plan plan = llama_plan();
  reshape(plan, 2, 1, 4, 1, {{4, 4}, {4, 4}, {4, 4}, {4, 4}});
  llm_of(plan).zero = 0;
  const Json yaml = actor_of(plan);
  EXPECT_EQ(yaml["actor_config"]["tensor_model_parallel_size"], 2);
  EXPECT_EQ(yaml["actor_config"]["num_layers_per_virtual_pipeline_stage"], 4);
  EXPECT_EQ(yaml["actor_config"]["sequence_parallel"], true);
  EXPECT_EQ(yaml["actor_config"]["bf16"], true);
  EXPECT_EQ(yaml["rl_config"]["mini_batch_size"], plan.workload.global_batch_samples);
  EXPECT_EQ(yaml["rl_config"]["actor_resource"]["num_npus"], 8);
}

TEST(MindspeedRlExport, ListsUnevenLayers) {
  Plan plan = llama_plan();
  reshape(plan, 1, 1, 3, 1, {{10}, {11}, {11}});
  llm_of(plan).zero = 0;
  EXPECT_EQ(actor_of(plan)["actor_config"]["num_layer_list"], "10,11,11");
}

TEST(MindspeedRlExport, RefusesWhatItsKeysCannotSay) {
  Plan plan = shipped_plan("llama3-8b_zero3_dp8");
  expect_refused(plan, Target::kMindspeedRl, "modules.llm.zero: is 3, but the distributed optimizer of MindSpeed-RL");
  plan = llama_plan();
  plan.precision.reduce = Precision::kBf16;
  expect_refused(plan, Target::kMindspeedRl, "precision.reduce: is bf16");
  expect_refused(shipped_plan("qwen2-vl-7b_inline"), Target::kMindspeedRl, "modules.vision.placement: is inline");
  plan = llama_plan();
  reshape(plan, 1, 1, 2, 2, {{9, 7}, {8, 8}});
  expect_refused(plan, Target::kMindspeedRl, "modules.llm.layers: differ");
}

}  // namespace
}  // namespace weft
