#include <gtest/gtest.h>

#include "tests/support/pipeline/example_training.h"
#include "tests/support/pipeline/tiny_models.h"
#include "weft/cost/block_memory.h"
#include "weft/cost/layer_walk.h"
#include "weft/measure/measure_step.h"
#include "weft/measure/measure_update.h"

// What blocks hold when they are measured alone, against what the cost model prices for them.
namespace weft {
namespace {

/// Few runs: what is tested here is not speed.
MeasureSettings quick_measuring() {
  return {.precision = Precision::kFp32, .num_cores = 1, .rule = {.least_runs = 1, .time_limit_ms = 1}};
}

std::vector<std::string> blocks_of_module(const Module& module) {
  std::vector<std::string> names = {module.entry.name, module.exit.name};
  for (const Block& kind : module.distinct_layers) names.push_back(kind.name);
  return names;
}

const Block& block_of_module(const Module& module, const std::string& name) {
  if (module.entry.name == name) return module.entry;
  if (module.exit.name == name) return module.exit;
  return *std::find_if(module.distinct_layers.begin(), module.distinct_layers.end(),
                       [&](const Block& kind) { return kind.name == name; });
}

/// What a layer keeps by a walk through its operators, its input with it.
double walked_bytes_of_layer(const Block& block, const Module& module, int64_t tp) {
  constexpr int64_t kRows = 1024, kLength = 256;
  ByteCount count;
  WayBack way;
  const WalkContext context{.count = &count,
                            .way = &way,
                            .element_bytes = 4,
                            .share = {.tp = tp, .ep = 1, .tp_rank = 0},
                            .divides_rows = tp > 1,
                            .rows = kRows / tp,
                            .whole_rows = kRows,
                            .segments = std::make_shared<std::vector<int64_t>>(kRows / kLength, kLength)};
  CountedTensor x = context.rows_of(kRows / tp, module.width);
  CountedTensor y = LayerWalk{{.block = block}}.forward(x, context);
  x.reset();
  y.reset();
  return static_cast<double>(count.held());
}

class MeasuredBlocks : public testing::TestWithParam<TinyModel> {};

TEST_P(MeasuredBlocks, AllHaveTimesAndKeepWhatTheCostModelCounts) {
  const Model model = example_model({.fixture = GetParam().fixture, .sizes = GetParam().sizes});
  for (const Module& module : model.modules) {
    for (const std::string& name : blocks_of_module(module)) {
      for (const int64_t tp : {1, 2}) {
        const BlockShape shape{.module = module.kind,
                               .block = name,
                               .tp = tp,
                               .sequence_parallel = tp > 1,
                               .tokens = 1024,
                               .sequence_tokens = 256};
        const auto measured = measure_block(model, shape, quick_measuring());
        ASSERT_TRUE(measured.ok()) << measured.error().message();
        const BlockMeasurement& found = (*measured)->measurement;
        const std::string what = fmt::format("{} {} at tp {}", name_of(module.kind), name, tp);
        EXPECT_GT(found.forward_ms, 0) << what;
        EXPECT_GT(found.backward_input_ms + found.backward_weight_ms, 0) << what;
        EXPECT_GT(found.sureness.runs, 0) << what;
        const Block& block = block_of_module(module, name);
        const bool is_layer = &block != &module.entry && &block != &module.exit;
        const double expected =
            is_layer ? walked_bytes_of_layer(block, module, tp)
                     : memory_of(module, block, {.tp = tp, .sequence_parallel = tp > 1, .precision = Precision::kFp32},
                                 {{256, 4}})
                           .saved;
        // An image's pixels are there whole; numbers of rows and places of targets are not priced.
        const double whole_input = &block == &module.entry && tp > 1 ? expected : 0;
        EXPECT_GE(found.kept_bytes, 0.95 * expected - 16 * 1024) << what;
        EXPECT_LE(found.kept_bytes, 1.05 * expected + whole_input + 48 * 1024) << what;
        EXPECT_GE(found.backward_peak_bytes, found.kept_bytes) << what;
        EXPECT_GE(found.forward_peak_bytes, 0) << what;
      }
    }
  }
}

TEST(MeasuredBlock, OfManyRanksHasTheShapesOfOneOfThem) {
  const Model experts = example_model({.fixture = "qwen3_moe_norm"});
  const auto kept = [&](const BlockShape& shape) {
    const auto measured = measure_block(experts, shape, quick_measuring());
    WEFT_CHECK(measured.ok(), "{}", measured.error().message());
    return (*measured)->measurement.kept_bytes;
  };
  const Module& llm = experts.modules.back();
  BlockShape shape{.block = llm.distinct_layers[llm.layers.front()].name, .tokens = 1024, .sequence_tokens = 1024};
  const double alone = kept(shape);
  shape.cp = 4;
  EXPECT_LT(kept(shape), 0.4 * alone);
  shape.cp_ulysses = 2;
  EXPECT_LT(kept(shape), 0.4 * alone);
  shape = {.block = shape.block, .ep = 2, .tokens = 1024, .sequence_tokens = 1024};
  EXPECT_NEAR(kept(shape), alone, 0.2 * alone) << "as many rows come from others as go to them";
}

TEST(MeasuredBlock, RunsOnSeveralRanksAtOnce) {
  const Model model = example_model({});
  BlockShape shape{.block = "layer", .busy_ranks = 2, .tokens = 64, .sequence_tokens = 32};
  const auto measured = measure_block(model, shape, quick_measuring());
  ASSERT_TRUE(measured.ok()) << measured.error().message();
  EXPECT_EQ((*measured)->measurement.shape, shape);
  EXPECT_GT((*measured)->measurement.forward_ms, 0);
}

TEST(MeasuredBlock, IsGivenUpWhenItIsStopped) {
  const Model model = example_model({});
  const std::atomic<bool> stop = true;
  MeasureSettings settings = quick_measuring();
  settings.stop = &stop;
  const auto measured = measure_block(model, {.block = "layer", .tokens = 64, .sequence_tokens = 32}, settings);
  ASSERT_TRUE(measured.ok());
  EXPECT_FALSE(measured->has_value());
}

TEST(MeasuredBlock, NamesABlockThatTheModelDoesNotHave) {
  const Model model = example_model({});
  const auto measured = measure_block(model, {.block = "layr", .tokens = 64, .sequence_tokens = 32}, quick_measuring());
  ASSERT_FALSE(measured.ok());
  EXPECT_NE(measured.error().message().find("layer"), std::string::npos) << measured.error().message();
}

TEST(MeasuredUpdate, TakesTimeForTheElementsOfItsLayers) {
  const Model model = example_model({});
  const auto measured = measure_update(model, 1, 1, quick_measuring());
  ASSERT_TRUE(measured.ok()) << measured.error().message();
  EXPECT_GT((*measured)->ms, 0);
  EXPECT_EQ((*measured)->elements, static_cast<double>(num_parameters(model.modules.back().distinct_layers.front())));
}

TEST(MeasuredStep, HasNoNegativeOverhead) {
  const auto measured = measure_step(example_model({}), 32, 1, quick_measuring());
  ASSERT_TRUE(measured.ok()) << measured.error().message();
  EXPECT_GE((*measured)->action_ms, 0);
  EXPECT_GE((*measured)->step_ms, 0);
}

INSTANTIATE_TEST_SUITE_P(Models, MeasuredBlocks, tiny_models(),
                         [](const auto& parameter) { return parameter.param.name; });

}  // namespace
}  // namespace weft
