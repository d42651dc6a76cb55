// Rows of earlier layers of an encoder that enter layers of the llm, over every form of parallelism, against one rank.
#include "tests/support/pipeline/example_training.h"
#include "weft/meaning/check.h"

namespace weft::branch_forms_test {
namespace {

class BranchForms : public testing::TestWithParam<TrainingExample> {};

TEST_P(BranchForms, EqualOneRank) {
  const TrainingExample& example = GetParam();
  const Model model = example_model(example);
  const Plan plan = example_training_plan(example, model);
  for (const Violation& violation : check_plan(plan)) ADD_FAILURE() << violation.field << " " << violation.message;
  expect_same_training(train_example(example, model), expected_training(example, model));
}

constexpr auto kVision = ModuleKind::kVision;

/// So many layers of the llm; three of the encoder's four have mergers of their own, which are listed in no order.
std::string with_layers(int64_t layers) {
  return fmt::format(
      R"({{"text_config": {{"num_hidden_layers": {}, "num_attention_heads": 4, "num_key_value_heads": 2}},
                          "vision_config": {{"depth": 4, "deepstack_visual_indexes": [2, 0, 1]}}}})",
      layers);
}

std::vector<TrainingExample> forms() {
  std::vector<TrainingExample> all;
  const auto add = [&](int64_t layers, TrainingExample example) {
    if (example.fixture == "llama_tied") example.fixture = "qwen3_vl_untied";
    example.sizes = with_layers(layers);
    example.sizes_name = std::to_string(layers);
    all.push_back(std::move(example));
  };
  // One stage, and rows of tokens divided as the encoder's are or not.
  add(4, {.mbs = 2, .has_videos = true});
  add(4, {.tp = 2, .mbs = 2});
  add(4, {.tp = 2, .sequence_parallel = true, .mbs = 2});
  add(4, {.tp = 2, .sequence_parallel = true, .encoder_sequence_parallel = false});
  add(4, {.tp = 2, .sequence_parallel = false, .encoder_sequence_parallel = true});
  // The encoder in the pipeline: its branches cross stages, then the parts of its rows do.
  add(4, {.pp = 4, .microbatches = 5, .has_videos = true});
  add(4, {.tp = 2,
          .pp = 4,
          .sequence_parallel = true,
          .microbatches = 4,
          .layers = {{0}, {1}, {1}, {2}},
          .vision_layers = {{2}, {2}, {0}, {0}}});
  add(4, {.tp = 2,
          .pp = 4,
          .microbatches = 4,
          .layers = {{0}, {0}, {2}, {2}},
          .vision_layers = {{1}, {1}, {2}, {0}},
          .recompute = {.full = 1, .selective = 1}});
  add(4, {.cp = 2, .ulysses = 2, .encoder_ulysses = 2, .mbs = 2});
  add(4, {.tp = 2, .cp = 2, .pp = 2, .sequence_parallel = true, .zero = 1, .microbatches = 3, .has_videos = true});
  // Beside it: on the llm's ranks, on others, with stages of its own.
  add(8, {.pp = 4,
          .vpp = 2,
          .schedule = "interleaved_1f1b",
          .microbatches = 4,
          .beside = {{kVision, {.dp = 4, .mbs_scale = 1}}}});
  add(8, {.tp = 2,
          .pp = 4,
          .vpp = 2,
          .sequence_parallel = true,
          .schedule = "interleaved_1f1b",
          .microbatches = 4,
          .beside = {{kVision, {.tp = 2, .dp = 4, .sequence_parallel = true}}}});
  add(4, {.pp = 2,
          .vpp = 2,
          .schedule = "zb_v",
          .microbatches = 4,
          .beside = {{kVision, {.dp = 2, .mbs_scale = 2, .form = EncoderForm::kFill, .live = 8}}}});
  add(4, {.tp = 2,
          .cp = 2,
          .pp = 2,
          .sequence_parallel = true,
          .microbatches = 3,
          .beside = {{kVision, {.placement = ModulePlacement::kDisjoint, .pp = 2, .form = EncoderForm::kStream}}}});
  add(4, {.tp = 2, .pp = 2, .schedule = "zb_h1", .microbatches = 4, .beside = {{kVision, {.cp = 2, .dp = 2}}}});
  // Weights that stay: of all the encoder, of all but a merger in the middle, of all but the llm's last layers.
  add(4, {.tp = 2, .pp = 2, .sequence_parallel = true, .frozen = {kVision}});
  add(4, {.tp = 2,
          .pp = 2,
          .sequence_parallel = true,
          .trainable = {{.weights = "*", .train = false}, {.weights = "model.visual.deepstack_merger_list.1.*"}}});
  add(4, {.pp = 4,
          .trainable = {{.weights = "*", .train = false},
                        {.weights = "model.visual.merger.*"},
                        {.weights = "model.visual.blocks.1.*"}}});
  // Experts, and samples without pictures or tokens to learn from.
  add(4, {.fixture = "qwen3_vl_moe", .tp = 2, .pp = 2, .dp = 2, .ep = 2, .sequence_parallel = true});
  add(4, {.fixture = "qwen3_vl_moe", .dp = 2, .ep = 2, .microbatches = 3, .balance_coefficient = 0.3});
  add(4, {.tp = 2,
          .pp = 2,
          .sequence_parallel = true,
          .microbatches = 4,
          .has_masked_sample = true,
          .has_short_sample = true});
  add(4, {.tp = 2, .pp = 2, .mbs = 2, .bare_samples = {0, 1}, .bare_step = 2});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Forms, BranchForms, testing::ValuesIn(forms()),
                         [](const auto& test) { return test.param.name(); });

}  // namespace
}  // namespace weft::branch_forms_test
