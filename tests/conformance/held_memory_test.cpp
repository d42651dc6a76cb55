// What a step's own lengths say that ranks hold, against ranks that run it. Compared are, on every rank, the bytes of
// tensors that are held after each action beyond weights, gradients, optimizer states and the batch, and the most that
// is held at once, start-up included.
//
// Two things are not for this rank's plan to say: when what is on its way arrives at another rank, and how much kernels
// of half precision pack in passing, which the processor decides on. Held is compared without the first. The peak must
// not be above what is said with the most of both, and be at least 85 % of what is said with none; ranks with less than
// a mebibyte of activations, of which these are the larger part, are left out of the latter.
#include <functional>

#include <fmt/format.h>

#include "tests/conformance/step_run.h"
#include "tests/support/pipeline/random_strategy_plan.h"
#include "weft/simulate/step_memory.h"

namespace weft {
namespace {

constexpr double kAllowedShare = 0.02;
/// Attention over cut rows and norms over a cut width are composed of LibTorch's operators, whose graphs are predicted
/// with a margin. No less may be said than elsewhere.
constexpr double kAllowedShareOfStrategies = 0.10;
constexpr int64_t kAllowedBytes = 64 << 10;
constexpr double kLeastShareOfPeak = 0.85;
constexpr int64_t kFewBytes = 1 << 20;
/// Plans that are compared for a model; fewer where only what a layer holds differs from the usual comparison.
constexpr uint64_t kUsualPlans = 10;
constexpr uint64_t kFewerPlans = 5;

/// The tiny models with wider rows: what a few hundred tokens leave is large beside the tolerance.
auto wider_models() {
  return testing::Values(
      TinyModel{"Omni", "qwen2_5_omni",
                R"({"text_config": {"hidden_size": 128, "num_attention_heads": 8, "num_key_value_heads": 2,
                                    "intermediate_size": 211, "max_position_embeddings": 4096,
                                    "rope_parameters": {"mrope_section": [2, 4, 2]}},
                    "vision_config": {"out_hidden_size": 128, "intermediate_size": 75},
                    "audio_config": {"output_dim": 128, "d_model": 48, "encoder_ffn_dim": 100}})"},
      TinyModel{"Windows", "qwen2_5_vl",
                R"({"text_config": {"hidden_size": 128, "num_attention_heads": 8, "num_key_value_heads": 2,
                                    "intermediate_size": 201, "max_position_embeddings": 4096,
                                    "rope_parameters": {"mrope_section": [2, 4, 2]}},
                    "vision_config": {"num_heads": 8, "hidden_size": 64, "out_hidden_size": 128,
                                      "intermediate_size": 90}})"},
      TinyModel{"Vision", "qwen2_vl_untied",
                R"({"text_config": {"max_position_embeddings": 4096, "intermediate_size": 160, "hidden_size": 96,
                                    "num_attention_heads": 4, "num_key_value_heads": 2,
                                    "rope_parameters": {"mrope_section": [4, 4, 4]}},
                    "vision_config": {"num_heads": 4, "embed_dim": 48, "hidden_size": 96}})"},
      TinyModel{"Experts", "qwen3_moe_norm",
                R"({"hidden_size": 96, "head_dim": 24, "moe_intermediate_size": 44,
                    "max_position_embeddings": 4096})"},
      TinyModel{"Text", "llama_tied",
                R"({"hidden_size": 144, "head_dim": 24, "intermediate_size": 171, "max_position_embeddings": 4096})"},
      // Rows of some layers of the tower enter layers of the llm.
      TinyModel{"Branches", "qwen3_vl_untied",
                R"({"text_config": {"hidden_size": 128, "num_hidden_layers": 4, "num_attention_heads": 8,
                                    "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 201,
                                    "max_position_embeddings": 4096, "rope_parameters": {"mrope_section": [4, 2, 2]}},
                    "vision_config": {"out_hidden_size": 128, "hidden_size": 48, "num_heads": 4, "depth": 4,
                                      "intermediate_size": 90, "deepstack_visual_indexes": [2, 0, 1]}})"},
      TinyModel{"Tiles", "internvl",
                R"({"text_config": {"hidden_size": 192, "num_attention_heads": 8, "num_key_value_heads": 2,
                                    "intermediate_size": 401, "max_position_embeddings": 4096},
                    "vision_config": {"hidden_size": 160, "num_attention_heads": 4, "intermediate_size": 250}})"},
      TinyModel{"Dropout", "gpt2",
                R"({"n_embd": 96, "n_head": 8, "n_inner": 211, "n_positions": 4096,
                    "embd_pdrop": 0.2, "attn_pdrop": 0.3, "resid_pdrop": 0.1})"},
      // Encoders that drop: patches, patches in windows, sound, tiles, and rows that enter layers of the llm.
      TinyModel{"DropoutVision", "qwen2_vl_untied",
                R"({"text_config": {"max_position_embeddings": 4096, "intermediate_size": 160, "hidden_size": 96,
                                    "num_attention_heads": 4, "num_key_value_heads": 2,
                                    "rope_parameters": {"mrope_section": [4, 4, 4]}, "attention_dropout": 0.2},
                    "vision_config": {"num_heads": 4, "embed_dim": 48, "hidden_size": 96, "attention_dropout": 0.1}})"},
      TinyModel{"DropoutWindows", "qwen2_5_vl",
                R"({"text_config": {"hidden_size": 128, "num_attention_heads": 8, "num_key_value_heads": 2,
                                    "intermediate_size": 201, "max_position_embeddings": 4096,
                                    "rope_parameters": {"mrope_section": [2, 4, 2]}},
                    "vision_config": {"num_heads": 8, "hidden_size": 64, "out_hidden_size": 128,
                                      "intermediate_size": 90, "attention_dropout": 0.3}})"},
      TinyModel{"DropoutSound", "qwen2_5_omni",
                R"({"text_config": {"hidden_size": 128, "num_attention_heads": 8, "num_key_value_heads": 2,
                                    "intermediate_size": 211, "max_position_embeddings": 4096,
                                    "rope_parameters": {"mrope_section": [2, 4, 2]}},
                    "vision_config": {"out_hidden_size": 128, "intermediate_size": 75, "attention_dropout": 0.1},
                    "audio_config": {"output_dim": 128, "d_model": 48, "encoder_ffn_dim": 100,
                                     "attention_dropout": 0.3, "dropout": 0.2, "activation_dropout": 0.1}})"},
      TinyModel{"DropoutBranches", "qwen3_vl_untied",
                R"({"text_config": {"hidden_size": 128, "num_hidden_layers": 4, "num_attention_heads": 8,
                                    "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 201,
                                    "max_position_embeddings": 4096, "rope_parameters": {"mrope_section": [4, 2, 2]}},
                    "vision_config": {"out_hidden_size": 128, "hidden_size": 48, "num_heads": 4, "depth": 4,
                                      "intermediate_size": 90, "deepstack_visual_indexes": [2, 0, 1],
                                      "attention_dropout": 0.2}})"},
      TinyModel{"DropoutTiles", "internvl",
                R"({"text_config": {"hidden_size": 192, "num_attention_heads": 8, "num_key_value_heads": 2,
                                    "intermediate_size": 401, "max_position_embeddings": 4096},
                    "vision_config": {"hidden_size": 160, "num_attention_heads": 4, "intermediate_size": 250,
                                      "attention_dropout": 0.1, "hidden_dropout_prob": 0.2,
                                      "projection_dropout": 0.3}})"},
      TinyModel{"DropoutBehindAttention", "internvl",
                R"({"text_config": {"hidden_size": 192, "num_attention_heads": 8, "num_key_value_heads": 2,
                                    "intermediate_size": 401, "max_position_embeddings": 4096},
                    "vision_config": {"hidden_size": 160, "num_attention_heads": 4, "intermediate_size": 250,
                                      "use_absolute_position_embeddings": false, "projection_dropout": 0.3}})"});
}

class HeldMemory : public testing::TestWithParam<TinyModel> {
 protected:
  void compare(const std::vector<Action>& actions, const RankMemory& run, const StepMemory& predicted) {
    ASSERT_EQ(predicted.actions.size(), actions.size());
    int64_t peak = run.start_peak;
    std::string peaks;  // of actions: found, said, said without what may be in passing
    for (size_t i = 0; i < actions.size(); ++i) {
      const ActionBytes& said = predicted.actions[i];
      const ActionMemory& found = run.actions[i];
      ASSERT_EQ(said.action, actions[i]);
      const int64_t held = found.held_bytes - found.sent_bytes - run.before_step;
      const auto allowed = static_cast<int64_t>(kAllowedShare * static_cast<double>(held)) + kAllowedBytes;
      const auto above = static_cast<int64_t>(most_above_ * static_cast<double>(held)) + kAllowedBytes;
      EXPECT_TRUE(said.held >= held - allowed && said.held <= held + above)
          << said.held << " bytes are said to be held after " << to_text(said.action) << ", and " << held
          << " are, beside " << found.sent_bytes << " on their way";
      most_held_ = std::max(most_held_, held);
      peak = std::max(peak, found.peak_bytes - run.batch);
      peaks += fmt::format("{} {} {} {}\n", to_text(said.action), found.peak_bytes - run.before_step, said.peak,
                           said.settled_peak);
    }
    EXPECT_LE(peak, predicted.peak_bytes()) << peaks << "start " << run.start_peak;
    ++num_compared_;
    if (peak - run.before_step + run.batch < kFewBytes) return;
    EXPECT_GE(static_cast<double>(peak), kLeastShareOfPeak * static_cast<double>(predicted.settled_peak_bytes()))
        << peaks << "start " << run.start_peak;
    ++num_with_least_;
  }

  /// Plans for a model, one for each seed, until enough were compared. `model_of` gives a seed's model; some rank must
  /// hold more than `least_held`.
  void compare_plans(uint64_t first, uint64_t usual_plans, int64_t least_held,
                     const std::function<Model(const Model&, uint64_t)>& model_of) {
    TrainingExample example{.fixture = GetParam().fixture, .sizes = GetParam().sizes, .stretch = 9, .steps = 1};
    const Model base = example_model(example);
    const uint64_t num_plans = draws(usual_plans);
    // More are drawn until half of the ranks are large enough for the 85 %, and one is large beside the tolerance.
    const auto is_enough = [&](uint64_t i) {
      return i > num_plans && ((num_with_least_ >= num_compared_ / 2 && most_held_ > least_held) || i > 2 * num_plans);
    };
    uint64_t compared_plans = 0;
    for (uint64_t i = 1; !is_enough(i) && !HasFailure(); ++i, ++compared_plans) {
      const uint64_t seed = first_seed(i);
      const Model model = model_of(base, seed);
      Plan plan = random_plan(model, first + seed, {.most_mbs = 5});
      draw_settings(seed, plan);
      SCOPED_TRACE("seed " + std::to_string(seed) + ": " + settings_text(plan) + " " +
                   to_json(adapters_of(model)).dump());
      example.mbs = plan.workload.global_batch_samples;
      example.microbatches = 1;
      example.frozen = plan.workload.frozen;
      compare_ranks(run_step(example, plan), plan);
    }
    record_plans(compared_plans);
    if (!has_usual_seeds()) return;
    EXPECT_GE(num_compared_, static_cast<int64_t>(num_plans)) << "fewer ranks than plans were compared";
    EXPECT_GE(num_with_least_, num_compared_ / 2);
    EXPECT_GT(most_held_, least_held) << "the steps are too small beside the tolerance";
  }

  /// The same of plans whose layers have strategies drawn at random.
  void compare_strategies(uint64_t first, int64_t least_held) {
    TrainingExample example{.fixture = GetParam().fixture, .sizes = GetParam().sizes, .stretch = 9, .steps = 1};
    const Model model = example_model(example);
    most_above_ = kAllowedShareOfStrategies;
    const uint64_t num_plans = draws(kFewerPlans);
    // More are drawn until one rank is large beside the tolerance.
    const auto is_enough = [&](uint64_t i) {
      return i >= num_plans && (most_held_ > least_held || i >= 6 * num_plans);
    };
    uint64_t seed = first_seed(first), compared_plans = 0;
    for (; !is_enough(compared_plans) && !HasFailure(); ++seed, ++compared_plans) {
      Plan plan = random_strategy_plan(model, seed);
      if (compared_plans % 3 == 0)
        plan.precision = {.compute = Precision::kBf16, .master = Precision::kFp32, .reduce = Precision::kFp32};
      SCOPED_TRACE("seed " + std::to_string(seed) + ": " + settings_text(plan) + " " + strategies_text(plan));
      example.mbs = plan.workload.global_batch_samples;
      example.microbatches = 1;
      example.frozen = plan.workload.frozen;
      compare_ranks(run_step(example, plan), plan);
    }
    record_plans(compared_plans);
    if (!has_usual_seeds()) return;
    EXPECT_GT(most_held_, least_held) << "the steps are too small beside the tolerance";
  }

  void compare_ranks(const StepRun& run, const Plan& plan) {
    for (int64_t rank = 0; rank < plan.world_size; ++rank) {
      SCOPED_TRACE("rank " + std::to_string(rank));
      const Result<StepMemory> predicted = step_memory(plan, run.load, rank);
      ASSERT_TRUE(predicted.ok()) << predicted.error().message();
      const auto index = static_cast<size_t>(rank);
      compare(run.actions[index], run.memory[index], *predicted);
    }
  }

  double most_above_ = kAllowedShare;  ///< of what is held, that may be said to be held more
  int64_t most_held_ = 0;
  int64_t num_compared_ = 0;
  int64_t num_with_least_ = 0;  ///< of them, those that are not too small for the 85 %
};

TEST_P(HeldMemory, IsSaidByLengthsAfterEveryActionAndAtItsPeak) {
  compare_plans(2000, kUsualPlans, int64_t{3} << 20, [](const Model& model, uint64_t) { return model; });
}

TEST_P(HeldMemory, IsSaidForAdapters) {
  // Products that are not trained keep nothing.
  compare_plans(3000, kFewerPlans, int64_t{2} << 20, with_drawn_adapters);
}

TEST_P(HeldMemory, IsSaidForStrategiesOfLayers) {
  compare_strategies(4000, int64_t{2} << 20);
}

INSTANTIATE_TEST_SUITE_P(Models, HeldMemory, wider_models(), [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace weft
