#include <array>
#include <set>

#include "tests/support/pipeline/example_training.h"
#include "weft/meaning/check.h"

namespace weft {
namespace {

class ContextForms : public testing::TestWithParam<TrainingExample> {};

TEST_P(ContextForms, EqualOneRank) {
  const TrainingExample& example = GetParam();
  const Model model = example_model(example);
  const Plan plan = example_training_plan(example, model);
  for (const Violation& violation : check_plan(plan)) ADD_FAILURE() << violation.field << " " << violation.message;
  expect_same_training(train_example(example, model), expected_training(example, model));
}

constexpr const char* kEightHeads =
    R"({"hidden_size": 48, "head_dim": 6, "num_attention_heads": 8, "num_key_value_heads": 2})";

/// Sixteen heads everywhere, for eight ranks that share out those of two.
struct Attending {
  const char* fixture;
  const char* sizes;
};
constexpr std::array<Attending, 3> kAttending = {
    // Packed samples, each token with those before it.
    Attending{"llama_tied", R"({"hidden_size": 96, "num_attention_heads": 16, "num_key_value_heads": 4})"},
    // Besides, every patch of an image with all others,
    Attending{"qwen2_vl_untied",
              R"({"text_config": {"hidden_size": 192, "num_attention_heads": 16, "num_key_value_heads": 4},
                  "vision_config": {"num_heads": 16, "embed_dim": 64, "hidden_size": 192}})"},
    // or with those of its window.
    Attending{"qwen2_5_vl",
              R"({"text_config": {"hidden_size": 128, "num_attention_heads": 16, "num_key_value_heads": 4},
                  "vision_config": {"num_heads": 16, "hidden_size": 64, "out_hidden_size": 128}})"}};

/// Every degree, by ring, by Ulysses and by both, for every kind of attention, with each other axis.
std::vector<TrainingExample> products() {
  std::vector<TrainingExample> all;
  for (const int64_t cp : {2, 4, 8}) {
    for (const int64_t ulysses : std::set<int64_t>{1, cp / 2, cp}) {
      for (const Attending& attending : kAttending) {
        TrainingExample example{.fixture = attending.fixture,
                                .sizes = attending.sizes,
                                .sizes_name = "sixteen_heads",
                                .cp = cp,
                                .ulysses = ulysses,
                                .encoder_ulysses = ulysses,
                                .mbs = 2,
                                .steps = 5};
        for (int64_t TrainingExample::*axis : {&TrainingExample::tp, &TrainingExample::pp, &TrainingExample::dp}) {
          TrainingExample& with = all.emplace_back(example);
          with.*axis = 2;
          with.sequence_parallel = with.tp > 1;
        }
      }
    }
  }
  return all;
}

std::vector<TrainingExample> forms() {
  std::vector<TrainingExample> all;
  // Ring, Ulysses and both, of packed samples, down to one token and to fewer tokens than ranks.
  for (const int64_t cp : {2, 4, 8}) {
    for (const int64_t ulysses : {1, 2, 8}) {
      if (ulysses > cp) continue;
      all.push_back({.sizes = kEightHeads, .cp = cp, .ulysses = ulysses, .mbs = 3, .has_short_sample = true});
    }
    all.push_back({.sizes = kEightHeads, .cp = cp, .ulysses = cp, .microbatches = 3, .has_masked_sample = true});
    all.push_back({.cp = cp, .mbs = 1, .has_short_sample = true});
  }
  // Heads that do not divide, and one key head for all.
  all.push_back({.fixture = "qwen2_tied", .cp = 2, .ulysses = 2, .mbs = 2});
  all.push_back({.fixture = "llama_tied", .cp = 4, .ulysses = 4, .mbs = 2});
  all.push_back({.sizes = R"({"hidden_size": 84, "num_attention_heads": 14, "num_key_value_heads": 7})",
                 .cp = 4,
                 .ulysses = 2,
                 .mbs = 2});
  // With every other form.
  for (const int64_t ulysses : {1, 2}) {
    for (const int64_t cp : {2, 4}) {
      if (ulysses == 2 && cp == 2) continue;  // below
      all.push_back({.fixture = "llama_tied", .tp = 2, .cp = cp, .sequence_parallel = true, .mbs = 2});
      all.back().ulysses = ulysses;
      all.push_back({.fixture = "qwen2_tied", .cp = cp, .pp = 2, .microbatches = 3});
      all.back().ulysses = ulysses;
      all.push_back({.fixture = "llama_scaled", .cp = cp, .dp = 2, .zero = 3, .mbs = 2});
      all.back().ulysses = ulysses;
    }
  }
  all.push_back({.fixture = "llama_tied", .tp = 2, .cp = 2, .pp = 2, .ulysses = 2, .microbatches = 3});
  all.push_back({.fixture = "llama_tied",
                 .tp = 2,
                 .cp = 2,
                 .pp = 2,
                 .sequence_parallel = true,
                 .schedule = "zb_h1",
                 .microbatches = 4,
                 .recompute = {.full = 1}});
  all.push_back({.fixture = "llama_scaled",
                 .cp = 2,
                 .pp = 2,
                 .dp = 2,
                 .ulysses = 2,
                 .zero = 2,
                 .microbatches = 3,
                 .recompute = {.selective = 2}});
  all.push_back({.sizes = R"({"num_hidden_layers": 5})",
                 .cp = 2,
                 .pp = 2,
                 .vpp = 2,
                 .dp = 2,
                 .zero = 1,
                 .schedule = "interleaved_1f1b",
                 .microbatches = 4});
  // Encoders in the pipeline: every row of an image with all others, in windows, and audio in chunks; positions of
  // three axes.
  for (const char* fixture : {"qwen2_vl_untied", "qwen2_5_vl", "qwen2_5_omni"}) {
    all.push_back({.fixture = fixture, .cp = 2, .mbs = 2});
    all.push_back({.fixture = fixture, .cp = 2, .ulysses = 2, .encoder_ulysses = 2, .mbs = 2});
    all.push_back({.fixture = fixture, .cp = 4, .ulysses = 2, .encoder_ulysses = 2, .microbatches = 3});
    all.push_back({.fixture = fixture, .cp = 8, .ulysses = 2, .mbs = 3, .microbatches = 1});
    all.push_back({.fixture = fixture, .tp = 2, .cp = 2, .dp = 2, .sequence_parallel = true, .zero = 1});
  }
  all.push_back({.fixture = "qwen2_vl_untied",
                 .tp = 2,
                 .cp = 2,
                 .pp = 2,
                 .sequence_parallel = true,
                 .microbatches = 3,
                 .layers = {{0}, {2}},
                 .vision_layers = {{3}, {0}},
                 .recompute = {.full = 1}});
  all.push_back({.fixture = "qwen2_5_vl",
                 .cp = 2,
                 .pp = 2,
                 .dp = 2,
                 .zero = 2,
                 .microbatches = 3,
                 .layers = {{0}, {2}},
                 .vision_layers = {{2}, {1}}});
  all.push_back({.fixture = "qwen2_5_omni",
                 .cp = 2,
                 .pp = 3,
                 .microbatches = 4,
                 .layers = {{0}, {1}, {1}},
                 .vision_layers = {{2}, {1}, {0}},
                 .audio_layers = {{1}, {1}, {0}}});
  all.push_back({.fixture = "qwen2_vl_untied", .cp = 2, .frozen = {ModuleKind::kVision}});
  all.push_back({.fixture = "qwen2_5_vl", .cp = 2, .frozen = {ModuleKind::kLlm}});
  // Experts shared out over context-parallel ranks, and a microbatch's tokens balanced together.
  for (const int64_t ep : {2, 4, 8})
    all.push_back({.fixture = "qwen3_moe_norm", .cp = 2, .dp = 4, .ep = ep, .microbatches = 1});
  all.push_back({.fixture = "qwen3_moe_norm", .cp = 2, .ep = 2, .mbs = 2, .balance_coefficient = 0.3});
  all.push_back({.fixture = "qwen3_moe_norm", .cp = 4, .ep = 4, .ulysses = 2, .mbs = 2, .balance_coefficient = 0.3});
  all.push_back({.fixture = "qwen3_moe_norm",
                 .tp = 2,
                 .cp = 2,
                 .pp = 2,
                 .ep = 2,
                 .sequence_parallel = true,
                 .microbatches = 3,
                 .balance_coefficient = 0.3,
                 .has_short_sample = true});
  for (TrainingExample& example : all) example.steps = 5;
  return all;
}

INSTANTIATE_TEST_SUITE_P(Products, ContextForms, testing::ValuesIn(products()),
                         [](const auto& test) { return test.param.name(); });
INSTANTIATE_TEST_SUITE_P(All, ContextForms, testing::ValuesIn(forms()),
                         [](const auto& test) { return test.param.name(); });

}  // namespace
}  // namespace weft
