#include "weft/plan/default_ulysses.h"

#include <numeric>

#include <gtest/gtest.h>

#include "weft/mesh/mesh.h"
#include "weft/plan/plan_json.h"
#include "weft/spec/model_reader.h"

namespace weft {
namespace {

struct Shape {
  int64_t heads = 32, devices_per_node = 8, tp = 1, cp = 1, dp = 1;
};

Plan plan_of(const Shape& shape) {
  Plan plan;
  Json config = {{"model_type", "llama"},       {"hidden_size", 64 * shape.heads},
                 {"intermediate_size", 128},    {"num_hidden_layers", 1},
                 {"vocab_size", 100},           {"num_attention_heads", shape.heads},
                 {"max_position_embeddings", 8}};
  auto model = read_model({.source = "test", .root = config}, "test");
  EXPECT_TRUE(model) << model.error().message();
  plan.model = *model;
  plan.cluster.devices_per_node = shape.devices_per_node;
  ModulePlan llm{.axis_order = default_axis_order()};
  llm.degrees() = {.tp = shape.tp, .cp = shape.cp, .dp = shape.dp};
  llm.ranks.resize(static_cast<size_t>(shape.tp * shape.cp * shape.dp));
  std::iota(llm.ranks.begin(), llm.ranks.end(), 0);
  plan.modules.push_back(llm);
  return plan;
}

int64_t found(const Shape& shape) {
  const Plan plan = plan_of(shape);
  return default_ulysses(plan, plan.llm());
}

TEST(DefaultUlysses, FillsANodeAndLeavesTheRestToTheRing) {
  EXPECT_EQ(found({.cp = 1}), 1);
  EXPECT_EQ(found({.cp = 8}), 8);
  EXPECT_EQ(found({.cp = 32}), 8);
  EXPECT_EQ(found({.tp = 2, .cp = 32}), 4);
  EXPECT_EQ(found({.tp = 8, .cp = 4}), 1);
  EXPECT_EQ(found({.devices_per_node = 6, .cp = 4, .dp = 3}), 2) << "the second group of 4 lies on two nodes";
}

TEST(DefaultUlysses, GivesEveryRankAHead) {
  EXPECT_EQ(found({.heads = 6, .cp = 8}), 4);
  EXPECT_EQ(found({.heads = 6, .tp = 4, .cp = 2}), 1);
}

}  // namespace
}  // namespace weft
