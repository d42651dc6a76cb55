#include "weft/search/space_shapes.h"

#include <set>

#include <gtest/gtest.h>

#include "tests/support/source_tree.h"
#include "weft/spec/scenario.h"

namespace weft::space_shapes_test {
namespace {

const Scenarios kScenarios(source_tree().string() + "/scenarios");

TEST(SpaceShapes, HaveEverySettingOfASmallMachineAndAreFew) {
  Cluster cluster = *kScenarios.cluster("local_cpu");
  cluster.devices_per_node = 2;
  Workload workload = *kScenarios.workload("vl_sft");
  workload.global_batch_samples = 8;
  const auto shapes = wanted_shapes(*kScenarios.model("tiny-vl"), cluster, workload, {});
  ASSERT_TRUE(shapes.ok()) << shapes.error().message();
  EXPECT_LE(shapes->size(), 96u);
  std::set<std::string> settings;
  std::set<std::string> blocks;
  for (const BlockShape& shape : *shapes) {
    blocks.insert(std::string(name_of(shape.module)) + " " + shape.block);
    EXPECT_EQ(shape.busy_ranks, 2);
    if (shape.module != ModuleKind::kLlm || shape.block != "layer") continue;
    settings.insert("tp " + std::to_string(shape.tp) + " cp " + std::to_string(shape.cp));
  }
  EXPECT_EQ(blocks.size(), 6u);
  EXPECT_TRUE(settings.contains("tp 1 cp 1") && settings.contains("tp 2 cp 1") && settings.contains("tp 1 cp 2"));
}

TEST(SpaceShapes, OfALargeSpaceAreNoMoreThanWereAskedFor) {
  const auto shapes = wanted_shapes(*kScenarios.model("qwen2-vl-7b"), *kScenarios.cluster("dgx_h100"),
                                    *kScenarios.workload("vl_sft"), {}, 40);
  ASSERT_TRUE(shapes.ok()) << shapes.error().message();
  EXPECT_EQ(shapes->size(), 40u);
  EXPECT_EQ(shapes->front().block, "layer") << "what takes most comes first";
}

}  // namespace
}  // namespace weft::space_shapes_test
