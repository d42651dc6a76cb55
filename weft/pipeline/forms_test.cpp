#include "weft/pipeline/example_training.h"

namespace weft {
namespace {

class TrainingForms : public testing::TestWithParam<TrainingExample> {};

TEST_P(TrainingForms, EqualOneRank) {
  const TrainingExample& example = GetParam();
  const Model model = example_model(example);
  expect_same_training(train_example(example, model), train_by_hand(example, model));
}

std::vector<TrainingExample> forms() {
  std::vector<TrainingExample> all;
  // Attention that runs again, alone, behind whole blocks that do, and with weight gradients apart.
  all.push_back({.fixture = "llama_scaled", .recompute = {.selective = 3}});
  all.push_back(
      {.fixture = "qwen2_tied", .tp = 2, .sequence_parallel = true, .recompute = {.full = 1, .selective = 1}});
  all.push_back({.fixture = "llama_scaled",
                 .pp = 2,
                 .dp = 2,
                 .zero = 3,
                 .schedule = "zb_h1",
                 .microbatches = 4,
                 .recompute = {.selective = 2}});
  all.push_back({.fixture = "qwen2_5_vl", .pp = 2, .recompute = {.full = 1, .selective = 2}});
  // Rows of encoders in the pipeline divided, in one stage and over several, as the llm's are or not.
  for (const char* fixture : {"qwen2_vl_untied", "qwen2_5_vl"}) {
    all.push_back({.fixture = fixture, .tp = 2, .sequence_parallel = true, .mbs = 2});
    all.push_back({.fixture = fixture, .tp = 2, .sequence_parallel = true, .encoder_sequence_parallel = false});
    all.push_back({.fixture = fixture, .tp = 2, .sequence_parallel = false, .encoder_sequence_parallel = true});
  }
  all.push_back({.fixture = "qwen2_vl_tied",
                 .tp = 2,
                 .pp = 3,
                 .sequence_parallel = true,
                 .microbatches = 4,
                 .layers = {{0}, {0}, {2}},
                 .vision_layers = {{1}, {1}, {0}}});
  all.push_back({.fixture = "qwen2_5_vl",
                 .tp = 2,
                 .pp = 2,
                 .dp = 2,
                 .sequence_parallel = true,
                 .zero = 2,
                 .microbatches = 3,
                 .layers = {{0}, {2}},
                 .vision_layers = {{3}, {0}},
                 .recompute = {.full = 1, .selective = 1}});
  all.push_back(
      {.fixture = "qwen2_vl_untied", .tp = 2, .pp = 2, .sequence_parallel = true, .frozen = {ModuleKind::kVision}});
  // Two encoders in the pipeline.
  all.push_back({.fixture = "qwen2_5_omni", .mbs = 2});
  all.push_back({.fixture = "qwen2_5_omni",
                 .pp = 3,
                 .microbatches = 4,
                 .layers = {{0}, {1}, {1}},
                 .vision_layers = {{2}, {1}, {0}},
                 .audio_layers = {{1}, {1}, {0}}});
  all.push_back({.fixture = "qwen2_5_omni",
                 .tp = 2,
                 .pp = 3,
                 .sequence_parallel = true,
                 .microbatches = 4,
                 .layers = {{0}, {0}, {2}},
                 .vision_layers = {{3}, {0}, {0}},
                 .audio_layers = {{1}, {1}, {0}}});
  all.push_back({.fixture = "qwen2_5_omni", .tp = 2, .dp = 2, .sequence_parallel = true, .zero = 1});
  all.push_back({.fixture = "qwen2_5_omni", .tp = 2, .frozen = {ModuleKind::kVision}});
  // Mixtures of experts, cut and balanced.
  for (const char* fixture : {"qwen3_moe_mixed", "qwen3_moe_norm"}) {
    for (const bool sequence_parallel : {false, true}) {
      for (const double coefficient : {0.0, 0.3}) {
        all.push_back(
            {.fixture = fixture, .tp = 2, .sequence_parallel = sequence_parallel, .balance_coefficient = coefficient});
      }
    }
  }
  all.push_back({.fixture = "qwen3_moe_norm", .dp = 2, .mbs = 2, .microbatches = 3, .balance_coefficient = 0.3});
  all.push_back({.fixture = "qwen3_moe_norm",
                 .tp = 3,
                 .pp = 2,
                 .sequence_parallel = true,
                 .schedule = "zb_h1",
                 .microbatches = 4,
                 .balance_coefficient = 0.3});
  all.push_back({.fixture = "qwen3_moe_mixed",
                 .tp = 2,
                 .pp = 2,
                 .dp = 2,
                 .sequence_parallel = true,
                 .zero = 2,
                 .microbatches = 3,
                 .recompute = {.full = 1, .selective = 1},
                 .balance_coefficient = 0.3});
  // Families that have no form of their own above, over both axes.
  for (const char* fixture : {"llama_tied", "llama_bias", "qwen2_tied", "qwen3"})
    all.push_back({.fixture = fixture, .tp = 2, .pp = 2, .sequence_parallel = true, .microbatches = 3});
  // Microbatches without a target, of one token, and of fewer rows than ranks.
  all.push_back({.pp = 2, .dp = 2, .has_masked_sample = true});
  all.push_back({.fixture = "qwen2_vl_untied", .tp = 2, .pp = 2, .sequence_parallel = true, .has_masked_sample = true});
  all.push_back({.fixture = "qwen3_moe_norm",
                 .tp = 2,
                 .sequence_parallel = true,
                 .microbatches = 3,
                 .balance_coefficient = 0.3,
                 .has_masked_sample = true,
                 .has_short_sample = true});
  all.push_back({.fixture = "qwen2_tied", .tp = 2, .pp = 2, .sequence_parallel = true, .has_short_sample = true});
  all.push_back({.fixture = "qwen2_tied",
                 .tp = 3,
                 .pp = 2,
                 .sequence_parallel = true,
                 .recompute = {.full = 1, .selective = 1},
                 .has_short_sample = true});
  all.push_back({.fixture = "qwen2_vl_untied", .tp = 2, .sequence_parallel = true, .has_short_sample = true});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Plans, TrainingForms, testing::ValuesIn(forms()),
                         [](const auto& named) { return named.param.name(); });

}  // namespace
}  // namespace weft
