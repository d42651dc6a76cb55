// Plans drawn at random, each trained for a few steps and compared with one rank. By default as many as fit into a few
// seconds; WEFT_RANDOM_PLANS=N draws N of every model.
#include <chrono>
#include <cstdlib>

#include "weft/pipeline/example_training.h"
#include "weft/plan/random_plan.h"

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
  const char* wanted = std::getenv("WEFT_RANDOM_PLANS");
  const int num_wanted = wanted != nullptr ? std::atoi(wanted) : 0;
  constexpr auto kTime = std::chrono::seconds(6);
  const auto start = std::chrono::steady_clock::now();
  TrainingExample example{.fixture = GetParam().fixture, .sizes = GetParam().sizes, .steps = 2, .epsilon = 1e-5};
  const Model model = example_model(example);
  int drawn = 0;
  for (uint64_t seed = 1; !HasFailure(); ++seed, ++drawn) {
    if (num_wanted > 0 ? drawn == num_wanted : std::chrono::steady_clock::now() - start > kTime) break;
    Plan plan = random_plan(model, seed);
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + settings_text(plan));
    plan.precision = example.precision;
    example.mbs = plan.workload.global_batch_samples;
    example.microbatches = 1;
    example.frozen = plan.workload.frozen;
    expect_same_training(train_plan(example, plan), train_by_hand(example, model));
  }
  RecordProperty("plans", drawn);
  std::printf("%d plans\n", drawn);
  EXPECT_GT(drawn, 0);
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
