// Plans drawn at random, each trained for a few steps and compared with one rank.
#include "tests/support/draws.h"
#include "tests/support/pipeline/example_training.h"
#include "tests/support/plan/random_plan.h"

namespace weft {
namespace {

struct Drawn {
  const char* name;
  const char* fixture;
  const char* sizes;
};

void PrintTo(const Drawn& drawn, std::ostream* out) {
  *out << drawn.name;
}

class RandomPlans : public testing::TestWithParam<Drawn> {};

TEST_P(RandomPlans, EqualOneRank) {
  TrainingExample example{.fixture = GetParam().fixture, .sizes = GetParam().sizes, .steps = 2, .epsilon = 1e-5};
  const Model model = example_model(example);
  for (uint64_t seed = 1; seed <= draws(uint64_t{12}) && !HasFailure(); ++seed) {
    Plan plan = random_plan(model, seed);
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + settings_text(plan));
    plan.precision = example.precision;
    example.mbs = plan.workload.global_batch_samples;
    example.microbatches = 1;
    example.frozen = plan.workload.frozen;
    expect_same_training(train_plan(example, plan), train_by_hand(example, model));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, RandomPlans,
    testing::Values(Drawn{"Omni", "qwen2_5_omni",
                          R"({"text_config": {"hidden_size": 64, "num_attention_heads": 8, "num_key_value_heads": 2},
                  "vision_config": {"out_hidden_size": 64}, "audio_config": {"output_dim": 64}})"},
                    Drawn{"Windows", "qwen2_5_vl",
                          R"({"text_config": {"hidden_size": 64, "num_attention_heads": 8, "num_key_value_heads": 2},
                  "vision_config": {"num_heads": 8, "hidden_size": 32, "out_hidden_size": 64}})"},
                    Drawn{"Vision", "qwen2_vl_untied", R"({"vision_config": {"num_heads": 4, "embed_dim": 16}})"},
                    Drawn{"Experts", "qwen3_moe_norm", "{}"}, Drawn{"Text", "llama_tied", "{}"}),
    [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace weft
