#include <gtest/gtest.h>

#include "tests/support/pipeline/example_training.h"
#include "tests/support/pipeline/tiny_models.h"
#include "weft/cost/block_memory.h"
#include "weft/measure/measure_block.h"

// What blocks hold when they are measured alone, against what the cost model prices for them.
namespace weft {
namespace {

/// Few runs: what is tested here is not speed.
MeasureSettings quick_measuring() {
  return {.precision = Precision::kFp32, .num_cores = 1, .rule = {.least_runs = 1, .time_limit_ms = 1}};
}

std::vector<std::string> blocks_of_module(const Module& module) {
  std::vector<std::string> names = {module.entry.name, module.exit.name};
  for (const Block& kind : module.layer_kinds) names.push_back(kind.name);
  return names;
}

const Block& block_of_module(const Module& module, const std::string& name) {
  if (module.entry.name == name) return module.entry;
  if (module.exit.name == name) return module.exit;
  return *std::find_if(module.layer_kinds.begin(), module.layer_kinds.end(),
                       [&](const Block& kind) { return kind.name == name; });
}

class MeasuredBlocks : public testing::TestWithParam<TinyModel> {};

TEST_P(MeasuredBlocks, AllHaveTimesAndHoldWhatTheCostModelPrices) {
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
        EXPECT_GE(found.backward_weight_ms, 0) << what;
        EXPECT_GT(found.sureness.runs, 0) << what;
        const BlockMemory priced = memory_of(
            module, block_of_module(module, name),
            {.tp = tp, .sequence_parallel = tp > 1, .precision = Precision::kFp32}, {{256, 4}});
        // Numbers of rows, places of targets, and what is padded are not priced.
        EXPECT_NEAR(found.kept_bytes, priced.saved, 0.05 * priced.saved + 64 * 1024) << what;
        EXPECT_GE(found.backward_peak_bytes, 0) << what;
        EXPECT_GE(found.forward_peak_bytes, 0) << what;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, MeasuredBlocks, tiny_models(),
                         [](const auto& parameter) { return parameter.param.name; });

}  // namespace
}  // namespace weft
