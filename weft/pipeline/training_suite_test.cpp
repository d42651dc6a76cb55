#include <functional>
#include <mutex>

#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include "tests/support/pipeline/example_training.h"
#include "weft/schedule/lowering.h"
#include "weft/schedule/step_end.h"

namespace weft::training_suite_test {
namespace {

class Training : public testing::TestWithParam<TrainingExample> {};

TEST_P(Training, EqualsOneRank) {
  TrainingExample example = GetParam();
  example.steps = 5;
  const Model model = example_model(example);
  const Plan plan = example_training_plan(example, model);
  const Schedule lowered = *lower_schedule(with_step_end(*schedule_of(plan)));
  const auto expect_row = [&](const World& world, const StepReport& report) {
    std::vector<Action> done;
    for (const TimelineEvent& event : report.events) done.push_back(event.action);
    EXPECT_EQ(done, lowered.rows[static_cast<size_t>(world.rank() / (example.tp * example.dp))]);
  };
  const std::optional<TrainingOutcome> found = train_plan_on(plan_ranks(), example, plan, expect_row);
  if (!found) GTEST_SKIP() << "on another number of processes";
  expect_same_training(*found, expected_training(example, model), {.allows_missing = plan_ranks().are_processes});
}

std::vector<TrainingExample> examples() {
  std::vector<TrainingExample> all;
  all.push_back({});
  // One dimension at a time.
  all.push_back({.dp = 2});
  all.push_back({.dp = 3, .mbs = 2, .microbatches = 1});
  all.push_back({.fixture = "qwen2_tied", .tp = 2});
  all.push_back({.fixture = "qwen2_tied", .tp = 2, .sequence_parallel = true});
  all.push_back({.fixture = "qwen3", .tp = 2, .sequence_parallel = true});
  all.push_back({.fixture = "llama_bias", .tp = 2});
  all.push_back({.fixture = "llama_bias", .tp = 2, .sequence_parallel = true});
  all.push_back({.pp = 2, .microbatches = 3});
  all.push_back({.fixture = "llama_scaled", .pp = 2, .schedule = "gpipe", .microbatches = 3});
  all.push_back({.fixture = "llama_scaled", .pp = 2, .schedule = "zb_h1", .microbatches = 4});
  all.push_back({.fixture = "llama_scaled", .pp = 2, .vpp = 2, .schedule = "interleaved_1f1b", .microbatches = 4});
  all.push_back({.fixture = "qwen2_tied", .pp = 2, .vpp = 2, .schedule = "zb_v", .microbatches = 4});
  for (const int64_t zero : {1, 2, 3}) {
    all.push_back({.dp = 2, .zero = zero, .buckets_mb = 0.01});
    all.push_back({.fixture = "qwen3", .tp = 2, .dp = 2, .sequence_parallel = true, .zero = zero});
    all.push_back({.fixture = "qwen2_tied", .tp = 2, .pp = 2, .dp = 2, .zero = zero, .microbatches = 3});
  }
  all.push_back({.fixture = "llama_scaled", .pp = 2, .recompute = {.full = 1}});
  all.push_back({.fixture = "llama_scaled", .pp = 2, .schedule = "zb_h1", .microbatches = 4, .recompute = {.full = 2}});
  // Products.
  all.push_back({.fixture = "qwen2_tied", .tp = 2, .pp = 2, .dp = 2, .sequence_parallel = true});
  all.push_back({.fixture = "qwen2_tied",
                 .tp = 2,
                 .pp = 2,
                 .vpp = 2,
                 .dp = 2,
                 .schedule = "interleaved_1f1b",
                 .microbatches = 4});
  // Encoders inside the pipeline, split over stages or not, trained or frozen.
  all.push_back({.fixture = "qwen2_vl_tied", .dp = 2, .mbs = 2});
  all.push_back({.fixture = "qwen2_vl_tied", .pp = 2, .microbatches = 4});
  all.push_back({.fixture = "qwen2_vl_untied", .tp = 2, .pp = 2, .sequence_parallel = true, .microbatches = 3});
  all.push_back({.fixture = "qwen2_vl_untied", .pp = 2, .microbatches = 3, .frozen = {ModuleKind::kVision}});
  all.push_back({.fixture = "qwen2_vl_untied", .pp = 2, .microbatches = 3, .frozen = {ModuleKind::kLlm}});
  all.push_back({.fixture = "qwen2_5_vl", .pp = 2, .dp = 2, .zero = 2, .microbatches = 3});
  all.push_back({.fixture = "qwen2_vl_tied", .pp = 2, .microbatches = 3, .frozen = {ModuleKind::kLlm}});
  all.push_back({.fixture = "qwen2_vl_tied", .tp = 2, .dp = 2, .sequence_parallel = true, .zero = 3});
  // Copied keys, uneven cuts, weights that are gathered for forward and backward apart.
  all.push_back({.fixture = "qwen2_tied", .tp = 3, .pp = 2, .sequence_parallel = true});
  all.push_back({.fixture = "llama_scaled",
                 .pp = 2,
                 .dp = 2,
                 .zero = 3,
                 .schedule = "zb_h1",
                 .microbatches = 4,
                 .recompute = {.full = 1}});
  // Blocks that are gathered and scattered one by one, with images on one data-parallel rank and not on the other, and
  // copies of the embedding on two ranks or on one.
  all.push_back({.fixture = "qwen2_vl_tied", .pp = 2, .dp = 2, .zero = 3, .microbatches = 3});
  all.push_back({.fixture = "qwen2_vl_untied", .dp = 2, .zero = 2, .buckets_mb = 0.01, .microbatches = 3});
  all.push_back({.fixture = "qwen2_5_vl", .dp = 2, .zero = 3, .microbatches = 3, .recompute = {.full = 1}});
  all.push_back({.fixture = "qwen2_vl_tied", .dp = 2, .zero = 3, .microbatches = 3, .frozen = {ModuleKind::kLlm}});
  all.push_back({.fixture = "qwen2_vl_tied", .dp = 2, .zero = 3, .microbatches = 3, .frozen = {ModuleKind::kVision}});
  for (const int64_t zero : {0, 1, 2, 3}) {
    all.push_back({.fixture = "qwen2_tied",
                   .pp = 2,
                   .vpp = 2,
                   .dp = 2,
                   .zero = zero,
                   .buckets_mb = 0.01,
                   .schedule = "zb_v",
                   .microbatches = 4});
  }
  // A mixture of experts, without cutting it.
  all.push_back({.fixture = "qwen3_moe_mixed", .pp = 2, .dp = 2, .zero = 1});
  // And shared out.
  all.push_back({.fixture = "qwen3_moe_norm", .dp = 2, .ep = 2});
  all.push_back({.fixture = "qwen3_moe_norm", .dp = 2, .ep = 2, .zero = 3});
  all.push_back({.fixture = "qwen3_moe_norm", .pp = 2, .dp = 4, .ep = 2, .zero = 3});
  return all;
}

/// Eight equal layers, with an embedding and a head that are smaller.
Model eight_layers() {
  const Document document{.source = "test", .root = Json::parse(R"({"model_type": "llama", "hidden_size": 32,
    "intermediate_size": 64, "num_hidden_layers": 8, "num_attention_heads": 2, "vocab_size": 64,
    "tie_word_embeddings": false, "max_position_embeddings": 128})")};
  auto model = read_model(document, "eight layers");
  WEFT_CHECK(model.ok(), "{}", model.error().message());
  return *std::move(model);
}

/// A microbatch of so many samples.
Inputs example_inputs(const TrainingRank& rank, int64_t num_samples) {
  const auto samples = example_batch({.mbs = num_samples, .microbatches = 1}, rank.numbers(), rank.vocabulary(), 1);
  return packed_example(rank.numbers(), rank.vocabulary(), samples, at::kDouble);
}

/// The most that rank 0's only stage held in a step, and elements of a layer and of the whole.
struct Held {
  HeldElements peak;
  int64_t layer = 0;
  int64_t all = 0;
};

Held most_held(const TrainingExample& example) {
  const Model model = eight_layers();
  const Plan plan = example_training_plan(example, model);
  Held held;
  const auto error = run_ranks({.size = plan.world_size}, [&](World& world) {
    auto made = TrainingRank::create(world, plan, {.seed = kExampleSeed});
    TrainingRank& rank = **made;
    const Inputs inputs = example_inputs(rank, 1);
    // In the second step values and gradients come from an update, not from the start.
    for (int64_t step = 0; step < 2; ++step) {
      rank.step(std::vector<Inputs>(static_cast<size_t>(example.microbatches), inputs), 10, kExampleRate);
    }
    if (world.rank() != 0) return;
    held.peak = rank.peak_elements().front();
    for (const ParameterPtr& parameter : rank.parameters()) {
      held.all += parameter->value.numel();
      if (parameter->name().find(".layers.3.") != std::string::npos) held.layer += parameter->value.numel();
    }
  });
  EXPECT_FALSE(error);
  return held;
}

TEST(TrainingRank, Zero3HoldsTwoBlocksOfValues) {
  for (const std::string schedule : {"1f1b", "zb_h1"}) {
    for (const int64_t recomputed : {0, 8}) {
      const Held held = most_held({.dp = 2, .zero = 3, .schedule = schedule, .recompute = {.full = recomputed}});
      const int64_t owned = held.all / 2;
      EXPECT_GT(held.peak.values, owned + held.layer);
      EXPECT_LE(held.peak.values, owned + 2 * held.layer + held.all / 20) << "of " << held.all;  // with padding
    }
  }
}

TEST(TrainingRank, Zero2HoldsABucketOrTwoOfWholeGradients) {
  for (const int64_t zero : {2, 3}) {
    for (const std::string schedule : {"1f1b", "zb_h1"}) {
      const Held whole = most_held({.dp = 2, .zero = 0, .schedule = schedule});
      // Buckets of about a layer: one is filled, as much and half of it again on its way, and half of that back.
      const double bucket_mb = static_cast<double>(whole.layer) * 8 * 1.05 / 1e6;
      const Held held = most_held({.dp = 2, .zero = zero, .buckets_mb = bucket_mb, .schedule = schedule});
      EXPECT_GE(whole.peak.gradients, whole.all);
      EXPECT_LE(held.peak.gradients, held.all / 2 + 13 * held.layer / 4 + held.all / 20) << "of " << held.all;
    }
  }
}

TEST(TrainingRank, AGradientThatIsNotFiniteLeavesTheWeights) {
  const TrainingExample example{.dp = 2};
  const Plan plan = example_training_plan(example, example_model(example));
  const auto error = run_ranks({.size = 2}, [&](World& world) {
    const auto made = TrainingRank::create(world, plan, {.seed = kExampleSeed});
    TrainingRank& rank = **made;
    const Inputs inputs = example_inputs(rank, 2);
    const at::NoGradGuard no_graph;
    const at::Tensor weight = rank.parameters().front()->value.detach();
    if (world.rank() == 1) weight.view({-1})[0] = std::nan("");
    const at::Tensor before = weight.clone();
    const StepReport report = [&] {
      const at::AutoGradMode with_graph(true);
      return rank.step({inputs, inputs}, 10, kExampleRate);
    }();
    EXPECT_FALSE(report.is_updated);
    EXPECT_TRUE(weight.equal(before) || world.rank() == 1);
  });
  EXPECT_FALSE(error);
}

TEST(TrainingRank, WhatIsNotRunYetIsNamed) {
  const TrainingExample example{.fixture = "qwen2_vl_tied", .pp = 2};
  const Model model = example_model(example);
  const auto refusal = [&](const std::function<void(Plan&)>& change) {
    Plan plan = example_training_plan(example, model);
    change(plan);
    std::string message;
    std::mutex guard;
    const auto error = run_ranks({.size = 2}, [&](World& world) {
      const auto made = TrainingRank::create(world, plan, {});
      const std::lock_guard lock(guard);
      message = made.ok() ? "" : made.error().message();
    });
    EXPECT_FALSE(error);
    return message;
  };
  EXPECT_EQ(refusal([](Plan&) {}), "");
  EXPECT_NE(refusal([](Plan& plan) { plan.precision.compute = Precision::kFp16; }).find("precision.compute"),
            std::string::npos);
  EXPECT_NE(refusal([](Plan& plan) { plan.offload.optimizer = 1; }).find("offload"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Plans, Training, testing::ValuesIn(examples()),
                         [](const auto& named) { return named.param.name(); });

}  // namespace
}  // namespace weft::training_suite_test
