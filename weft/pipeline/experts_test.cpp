#include "tests/support/pipeline/example_training.h"

namespace weft {
namespace {

class CrowdedExperts : public testing::TestWithParam<TrainingExample> {};

TEST_P(CrowdedExperts, EqualOneRank) {
  const TrainingExample& example = GetParam();
  const Model model = example_model(example);
  const TrainingOutcome found = train_example(example, model);
  expect_same_training(found, expected_training(example, model));
  const auto chosen = model.config.at("num_experts_per_tok").get<size_t>();
  const auto all = model.config.at("num_local_experts").get<size_t>();
  ASSERT_EQ(std::ssize(found.loads), example.steps);
  for (const ExpertLoad& load : found.loads) {
    EXPECT_DOUBLE_EQ(load.imbalance, static_cast<double>(all) / static_cast<double>(chosen));
    ASSERT_EQ(load.rows.size(), all);
    for (size_t expert = 0; expert + chosen < all; ++expert) EXPECT_EQ(load.rows[expert], 0);
    for (size_t expert = all - chosen; expert < all; ++expert) {
      EXPECT_GT(load.rows[expert], 0);
      EXPECT_EQ(load.rows[expert], load.rows.back());
    }
  }
}

std::vector<TrainingExample> crowds() {
  std::vector<TrainingExample> all;
  const auto add = [&](TrainingExample example) {
    example.crowds_experts = true;
    all.push_back(std::move(example));
  };
  const std::string one_chosen = R"({"num_experts_per_tok": 1})";
  // All rows of all ranks meet on the last rank, or on the last two.
  for (const int64_t ep : {2, 4}) {
    add({.fixture = "qwen3_moe_norm", .dp = ep, .ep = ep});
    add({.fixture = "qwen3_moe_norm", .sizes = one_chosen, .dp = ep, .ep = ep});
    // Its loss soon gets the experts back to work.
    add({.fixture = "qwen3_moe_norm", .sizes = one_chosen, .dp = ep, .ep = ep, .balance_coefficient = 0.3, .steps = 2});
    add({.fixture = "qwen3_moe_norm", .sizes = one_chosen, .dp = 4, .ep = ep, .zero = 3, .recompute = {.full = 1}});
    add({.fixture = "qwen3_moe_norm",
         .sizes = one_chosen,
         .pp = 2,
         .dp = 4,
         .ep = ep,
         .zero = 2,
         .schedule = "zb_h1",
         .microbatches = 4});
  }
  // Weights of choices that are not made to sum to 1, so that a router with one choice learns, too.
  add({.fixture = "qwen3_moe_mixed",
       .sizes = R"({"num_experts_per_tok": 1, "num_local_experts": 8})",
       .tp = 2,
       .dp = 4,
       .ep = 4,
       .sequence_parallel = true,
       .zero = 1});
  add({.fixture = "qwen3_moe_mixed",
       .sizes = R"({"num_local_experts": 6})",
       .dp = 4,
       .ep = 2,
       .has_short_sample = true});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Plans, CrowdedExperts, testing::ValuesIn(crowds()),
                         [](const auto& named) { return named.param.name(); });

/// What rank 0 holds of the experts that it has: eight layers in one stage.
struct HeldExperts {
  HeldElements peak;
  HeldElements stage_peak;   ///< of all weights of the stage
  HeldElements shared_peak;  ///< of those that are no experts
  int64_t layer = 0;         ///< elements of a layer's experts here
};

constexpr int64_t kLayers = 8;

HeldExperts most_held(TrainingExample example) {
  example.fixture = "qwen3_moe_norm";
  example.sizes = R"({"num_hidden_layers": 8, "moe_intermediate_size": 64})";
  const Model model = example_model(example);
  const Plan plan = example_training_plan(example, model);
  HeldExperts held;
  const auto error = run_ranks({.size = plan.world_size}, [&](World& world) {
    at::set_num_threads(1);
    const auto made = TrainingRank::create(world, plan, {.seed = kExampleSeed});
    WEFT_CHECK(made.ok(), "{}", made.error().message());
    TrainingRank& rank = **made;
    // In the second step values and gradients come from an update, not from the start.
    for (int64_t step = 1; step <= 2; ++step) {
      const std::vector<RawInputs> samples = example_batch(example, rank.numbers(), rank.vocabulary(), step);
      rank.step(example_microbatches(example, rank, samples), 10, kExampleRate);
    }
    if (world.rank() != 0) return;
    ASSERT_EQ(rank.optimizers().size(), 2u);
    held.stage_peak = rank.peak_elements().front();
    held.shared_peak = rank.optimizers()[0]->peak_elements();
    held.peak = rank.optimizers()[1]->peak_elements();
    for (const ParameterPtr& parameter : rank.parameters()) {
      if (parameter->name().find(".layers.3.mlp.experts.") != std::string::npos) held.layer += parameter->value.numel();
    }
  });
  EXPECT_FALSE(error) << error->message();
  EXPECT_GT(held.layer, 0);
  EXPECT_EQ(held.stage_peak.values, held.peak.values + held.shared_peak.values);
  EXPECT_EQ(held.stage_peak.gradients, held.peak.gradients + held.shared_peak.gradients);
  EXPECT_EQ(held.stage_peak.states, held.peak.states + held.shared_peak.states);
  return held;
}

TEST(HeldExperts, AreDividedByTheRanksThatHaveTheSame) {
  for (const std::string schedule : {"1f1b", "zb_h1"}) {
    for (const int64_t zero : {0, 1, 2, 3}) {
      SCOPED_TRACE(testing::Message() << schedule << ", ZeRO " << zero);
      // Buckets of about a layer's experts.
      const double buckets_mb = 18432 * 8 * 1.05 / 1e6;
      const HeldExperts held =
          most_held({.dp = 4, .ep = 2, .zero = zero, .buckets_mb = buckets_mb, .schedule = schedule});
      EXPECT_EQ(held.layer, 18432);
      const int64_t all = kLayers * held.layer;
      EXPECT_EQ(held.peak.states, zero == 0 ? 2 * all : all);  // two moments
      if (zero < 3) {
        EXPECT_EQ(held.peak.values, all);
      } else {
        EXPECT_GT(held.peak.values, all / 2 + held.layer);
        EXPECT_LE(held.peak.values, all / 2 + 2 * held.layer);
      }
      if (zero < 2) {
        EXPECT_EQ(held.peak.gradients, all);
      } else {
        EXPECT_GT(held.peak.gradients, all / 2);
        EXPECT_LE(held.peak.gradients, all / 2 + 13 * held.layer / 4);
      }
    }
  }
}

TEST(HeldExperts, AreWholeWhereNoOtherRankHasThem) {
  for (const int64_t zero : {0, 1, 2, 3}) {
    const HeldExperts held = most_held({.dp = 4, .ep = 4, .zero = zero});
    const int64_t all = kLayers * held.layer;
    EXPECT_EQ(held.peak.values, all) << "ZeRO " << zero;
    EXPECT_EQ(held.peak.gradients, all) << "ZeRO " << zero;
    EXPECT_EQ(held.peak.states, 2 * all) << "ZeRO " << zero;
  }
}

}  // namespace
}  // namespace weft
