#include "weft/meaning/stage_flow.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

constexpr auto kAlways = [](size_t) { return true; };

// An encoder on stages 0 and 1 of which two layers branch, one on each; the llm begins on stage 1 and adds three parts,
// behind layers on stages 1, 1 and 3.
std::vector<FlowModule> inline_modules() {
  return {{.is_in_pipeline = true,
           .is_trained = true,
           .first_stage = 0,
           .last_stage = 1,
           .width = 10,
           .output_width = 80,
           .branches = {1, 2, 2, 2, 2},
           .later_parts = {3, 1, 1, 0, 0}},
          {.is_llm = true,
           .is_in_pipeline = true,
           .is_trained = true,
           .first_stage = 1,
           .last_stage = 4,
           .width = 20,
           .output_width = 20}};
}

TEST(StageFlow, BranchesGoBesideRowsAndPartsOnlyAsFarAsALayerAddsThem) {
  const std::vector<FlowModule> modules = inline_modules();
  const auto inside = flow_after(modules, 0, kAlways);
  ASSERT_EQ(inside.size(), 1u);
  EXPECT_EQ(inside[0].kind, FlowKind::kBetween);
  EXPECT_EQ(inside[0].width, 20) << "rows of ten, and those of one branch";
  for (const int32_t stage : {1, 2}) {
    const auto taken = flow_after(modules, stage, kAlways);
    ASSERT_EQ(taken.size(), 2u) << stage;
    EXPECT_EQ(taken[0].kind, FlowKind::kTaken);
    EXPECT_EQ(taken[0].module, 0u);
    EXPECT_EQ(taken[0].width, 20) << "the last part alone";
    EXPECT_TRUE(taken[0].needs_gradient);
    EXPECT_EQ(taken[1].width, 20);
  }
  EXPECT_EQ(flow_after(modules, 3, kAlways).size(), 1u) << "all parts have been added";
}

TEST(StageFlow, LayersBehindSayWhatIsCarried) {
  const std::vector<StagePart> parts = {{.stage = 0, .module = 0, .first_layer = 0, .num_layers = 3},
                                        {.stage = 1, .module = 0, .first_layer = 3, .num_layers = 1},
                                        {.stage = 1, .module = 1, .first_layer = 0, .num_layers = 2},
                                        {.stage = 2, .module = 1, .first_layer = 2, .num_layers = 4}};
  EXPECT_EQ(layers_behind(parts, 0, 0), 3);
  EXPECT_EQ(layers_behind(parts, 0, 2), 4);
  EXPECT_EQ(layers_behind(parts, 1, 0), 0);
  EXPECT_EQ(layers_behind(parts, 1, 1), 2);
  Module encoder;
  encoder.output_parts = 4;
  encoder.exit.ops.resize(4);
  encoder.exit.ops[1].branches_from = 2;
  encoder.exit.ops[3].branches_from = 3;
  EXPECT_EQ(num_branches(encoder, 2), 0);
  EXPECT_EQ(num_branches(encoder, 3), 1);
  EXPECT_EQ(num_branches(encoder, 4), 2);
  EXPECT_EQ(num_later_parts(encoder, 0), 3);
  EXPECT_EQ(num_later_parts(encoder, 2), 1);
  EXPECT_EQ(num_later_parts(encoder, 5), 0);
}

TEST(StageFlow, PartsFromBesideThePipelineGoOnLikewise) {
  std::vector<FlowModule> modules = inline_modules();
  modules[0].is_in_pipeline = false;
  modules[0].is_beside = true;
  modules[0].is_trained = false;
  modules[1].first_stage = 0;
  const auto taken = flow_after(modules, 0, kAlways);
  ASSERT_EQ(taken.size(), 2u);
  EXPECT_EQ(taken[0].kind, FlowKind::kTaken);
  EXPECT_EQ(taken[0].width, 60);
  EXPECT_FALSE(taken[0].needs_gradient);
  EXPECT_EQ(flow_after(modules, 0, [](size_t module) { return module == 1; }).size(), 1u);
}

}  // namespace
}  // namespace weft
