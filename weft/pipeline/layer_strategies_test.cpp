// Families' models with strategies for the operators of their layers, trained and compared with one rank.
#include "tests/support/draws.h"
#include "tests/support/meaning/random_plan.h"
#include "tests/support/pipeline/example_training.h"
#include "tests/support/pipeline/tiny_models.h"
#include "tests/support/program/random_strategy.h"
#include "weft/meaning/check.h"

namespace weft::layer_strategies_test {
namespace {

/// Gradients that are rounding alone are not blown up by the update.
constexpr double kEpsilon = 1e-5;

void expect_strategy_trains(const TrainingExample& example, const Model& model, const Plan& plan) {
  SCOPED_TRACE(to_json(plan.llm().strategy).dump());
  for (const Violation& violation : check_plan(plan)) ADD_FAILURE() << violation.field << " " << violation.message;
  if (testing::Test::HasFailure()) return;
  expect_same_training(train_plan(example, plan), train_by_hand(example, model));
}

BlockEntries all_layers(const Model& model, const std::vector<StrategyEntry>& entries) {
  BlockEntries blocks;
  for (const Block& kind : model.modules.back().distinct_layers) blocks[kind.name] = entries;
  return blocks;
}

TEST(LayerStrategies, TheUsualChoicesTrainThroughPrograms) {
  for (const bool divides_rows : {false, true}) {
    for (const char* fixture : {"llama_tied", "qwen3", "gpt2", "llama_bias"}) {
      TrainingExample example{
          .fixture = fixture, .tp = 2, .sequence_parallel = divides_rows, .mbs = 2, .epsilon = kEpsilon};
      SCOPED_TRACE(example.name());
      const Model model = example_model(example);
      expect_strategy_trains(example, model,
                             with_llm_strategy(example_training_plan(example, model), all_layers(model, {})));
    }
  }
}

TEST(LayerStrategies, RowsAreCutEverywhere) {
  // More ranks than some sequences have rows, and as many heads of keys as do not divide.
  for (const int64_t tp : {2, 4}) {
    for (const bool divides_rows : {false, true}) {
      TrainingExample example{
          .fixture = "llama_tied", .tp = tp, .sequence_parallel = divides_rows, .mbs = 2, .epsilon = kEpsilon};
      example.has_short_sample = true;
      SCOPED_TRACE(example.name());
      const Model model = example_model(example);
      expect_strategy_trains(example, model,
                             with_llm_strategy(example_training_plan(example, model),
                                               all_layers(model, {{.pattern = "*", .words = {{"tp", "s"}}}})));
    }
  }
}

/// Of all forms that plans have but context parallelism.
class RandomLayerStrategies : public testing::TestWithParam<TinyModel> {};

TEST_P(RandomLayerStrategies, EqualOneRank) {
  TrainingExample example{.fixture = GetParam().fixture, .sizes = GetParam().sizes, .steps = 3, .epsilon = kEpsilon};
  const Model model = example_model(example);
  uint64_t count = 0;
  for (uint64_t seed = 1; count < draws(uint64_t{8}) && !HasFailure(); ++seed) {
    Plan plan = random_plan(model, seed, {.world_size = seed % 4 == 0 ? 6 : 8, .allows_cp = false});
    if (plan.llm().tp == 1) continue;
    ++count;
    std::mt19937_64 random(seed);
    // Layers of programs recompute all or nothing.
    for (auto& chunks : plan.modules.back().recompute) {
      for (Recompute& chunk : chunks) {
        if (chunk.count(BlockRecompute::kAttention) > 0) chunk = Recompute{};
      }
    }
    plan = with_llm_strategy(plan, random_layer_strategy(model.modules.back(), plan.llm().tp, random));
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + settings_text(plan));
    plan.precision = example.precision;
    example.mbs = plan.workload.global_batch_samples;
    example.microbatches = 1;
    example.frozen = plan.workload.frozen;
    example.trainable = plan.trainable;
    expect_strategy_trains(example, model, plan);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, RandomLayerStrategies,
    testing::Values(TinyModel{"Llama", "llama_tied", "{}"},
                    TinyModel{"LlamaBias", "llama_bias", R"({"num_hidden_layers": 4})"},
                    TinyModel{"Qwen2", "qwen2_tied", "{}"}, TinyModel{"Qwen3", "qwen3", "{}"},
                    TinyModel{"GPT2", "gpt2",
                              R"({"n_embd": 32, "n_head": 8, "embd_pdrop": 0.2, "attn_pdrop": 0.3, "resid_pdrop": 0.1})"},
                    TinyModel{"Qwen2VL", "qwen2_vl_untied", R"({"vision_config": {"num_heads": 4, "embed_dim": 16}})"},
                    TinyModel{"Qwen25VL", "qwen2_5_vl",
                              R"({"text_config": {"hidden_size": 64, "num_attention_heads": 8, "num_key_value_heads": 2},
                                  "vision_config": {"num_heads": 8, "hidden_size": 32, "out_hidden_size": 64}})"},
                    TinyModel{"Qwen3VL", "qwen3_vl_untied",
                              R"({"text_config": {"hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 8,
                                                  "num_key_value_heads": 2},
                                  "vision_config": {"out_hidden_size": 32, "depth": 4,
                                                    "deepstack_visual_indexes": [2, 0, 1]}})"},
                    kTinyTiles, kTinyOmni),
    [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace weft::layer_strategies_test
