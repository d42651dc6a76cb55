#include "weft/spec/draw_batch.h"

#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "tests/support/source_tree.h"
#include "weft/spec/scenario.h"

namespace weft::draw_batch_test {
namespace {

const Scenarios kScenarios(source_tree().string() + "/scenarios");
constexpr int kDraws = 40'000;

struct Moments {
  double mean = 0;
  double deviation = 0;
  double most = 0;
};

Moments drawn_moments(const Model& model, const Workload& workload, ModuleKind kind) {
  SampleDrawer drawer(model, workload, 5);
  double sum = 0, squares = 0;
  Moments moments;
  for (int i = 0; i < kDraws; ++i) {
    const double tokens = num_tokens(drawer.draw().of(kind));
    sum += tokens;
    squares += tokens * tokens;
    moments.most = std::max(moments.most, tokens);
  }
  moments.mean = sum / kDraws;
  moments.deviation = std::sqrt(squares / kDraws - moments.mean * moments.mean);
  return moments;
}

TEST(SampleDrawer, DrawsHaveTheMomentsOfTheWorkload) {
  for (const auto& [model_name, workload_name] :
       {std::pair{"qwen2-vl-7b", "vl_sft"}, {"qwen2-vl-7b", "vl_long"}, {"qwen2.5-omni-7b", "omni_short"}}) {
    const Model model = *kScenarios.model(model_name);
    const Workload workload = *kScenarios.workload(workload_name);
    const SampleLoad average = *average_sample(model, workload);
    for (const Module& module : model.modules) {
      const Moments drawn = drawn_moments(model, workload, module.kind);
      const TokenSpread spread = token_spread(model, workload, average, module.kind);
      const std::string what = std::string(workload_name) + " " + std::string(name_of(module.kind));
      EXPECT_NEAR(drawn.mean, num_tokens(average.of(module.kind)), 0.02 * drawn.mean + 1e-9) << what;
      EXPECT_NEAR(drawn.deviation, spread.deviation, 0.05 * spread.deviation + 0.01 * drawn.mean) << what;
      EXPECT_LE(drawn.most, spread.most * (1 + 1e-2)) << what;
    }
  }
}

TEST(SampleDrawer, ASeedGivesTheSameSamplesOnEveryMachine) {
  const Model model = *kScenarios.model("llama3-8b");
  const Workload workload{.tokens = Distribution::weighted({{1, 0.25}, {2, 0.25}, {3, 0.25}, {4, 0.25}})};
  SampleDrawer drawer(model, workload, 0);
  // The first outputs of mt19937_64 with seed 0 are fixed by the C++ standard: 2947667278772165694 is 0.159…,
  // 18301848765998365067 is 0.992…, 729919693006235833 is 0.039…, 11021831128136023278 is 0.597….
  for (const double tokens : {1, 4, 1, 3}) EXPECT_EQ(drawer.draw().llm.front().length, tokens);
}

TEST(SampleDrawer, MediaEmbeddingsComeOnTopOfTextUnlessTheSequenceHoldsThem) {
  const Model model = *kScenarios.model("qwen2-vl-7b");
  Workload workload = *kScenarios.workload("vl_sft");
  workload.tokens = Distribution::constant(1000);
  workload.images = {Distribution::constant(3), Distribution::constant(400)};
  workload.tokens_include_media = false;
  EXPECT_EQ(SampleDrawer(model, workload, 1).draw().llm.front().length, 1000 + 3 * 100) << "2 × 2 patches are merged";
  workload.tokens_include_media = true;
  const SampleLoad load = SampleDrawer(model, workload, 1).draw();
  EXPECT_EQ(load.llm.front().length, 1000);
  EXPECT_EQ(load.vision, (Segments{{400, 1}, {400, 1}, {400, 1}}));
}

TEST(SampleDrawer, WorkloadsWithoutSpreadAreKnown) {
  Workload workload{.tokens = Distribution::constant(100)};
  EXPECT_FALSE(has_distributions(workload));
  workload.images = {Distribution::constant(0), Distribution::weighted({{1, 1}, {2, 1}})};
  EXPECT_FALSE(has_distributions(workload)) << "no images, whatever their sizes";
  workload.images.pieces_per_sample = Distribution::constant(1);
  EXPECT_TRUE(has_distributions(workload));
  workload.images = {};
  workload.tokens = Distribution::weighted({{1, 1}, {2, 1}});
  EXPECT_TRUE(has_distributions(workload));
}

TEST(TokenSpread, HighLoadsHoldTheLargestSampleAndAreNoMoreThanPossible) {
  const TokenSpread spread{.mean = 100, .deviation = 10, .most = 300};
  EXPECT_DOUBLE_EQ(high_tokens(spread, 1), 300);
  EXPECT_DOUBLE_EQ(high_tokens(spread, 26), 300 + 2500 + 4 * 5 * 10);
  EXPECT_DOUBLE_EQ(high_tokens({.mean = 100, .deviation = 10, .most = 110}, 1), 110);
  EXPECT_DOUBLE_EQ(high_tokens({.mean = 100, .deviation = 0, .most = 100}, 7), 700);
}

TEST(TokenSpread, DrawnMicrobatchesHardlyEverExceedAHighLoad) {
  const Model model = *kScenarios.model("qwen2-vl-7b");
  const Workload workload = *kScenarios.workload("vl_sft");
  const SampleLoad average = *average_sample(model, workload);
  SampleDrawer drawer(model, workload, 9);
  for (const ModuleKind kind : {ModuleKind::kVision, ModuleKind::kLlm}) {
    const double high = high_tokens(token_spread(model, workload, average, kind), 4);
    int num_above = 0;
    for (int i = 0; i < kDraws / 4; ++i) {
      double tokens = 0;
      for (int sample = 0; sample < 4; ++sample) tokens += num_tokens(drawer.draw().of(kind));
      num_above += tokens > high * (1 + 1e-9) ? 1 : 0;
    }
    EXPECT_LE(num_above, kDraws / 4 / 500) << name_of(kind);
  }
}

TEST(SampleDrawer, AValueIsTheFirstWhoseSumOfProbabilitiesIsAboveTheNumberDrawn) {
  const Model model = *kScenarios.model("llama3-8b");
  std::mt19937_64 numbers(3), weights(4);
  std::vector<Distribution::Outcome> outcomes;
  for (int i = 0; i < 5'000; ++i) outcomes.push_back({static_cast<double>(i), static_cast<double>(weights() % 1'000)});
  const Workload workload{.tokens = Distribution::weighted(outcomes)};
  SampleDrawer drawer(model, workload, 3);
  for (int draw = 0; draw < 2'000; ++draw) {
    const double uniform = static_cast<double>(numbers() >> 11) * 0x1p-53;
    double sum = 0, expected = workload.tokens.max();
    for (const auto& [value, probability] : workload.tokens.outcomes()) {
      sum += probability;
      if (uniform >= sum) continue;
      expected = value;
      break;
    }
    ASSERT_EQ(drawer.draw().llm.front().length, expected);
  }
}

TEST(SampleDrawer, PiecesAreExpectedAsTheyAreDrawn) {
  for (const auto& [model_name, workload_name] :
       {std::pair{"qwen2-vl-7b", "vl_sft"}, {"internvl3-8b", "vl_sft"}, {"qwen2.5-omni-7b", "omni_short"}}) {
    const Model model = *kScenarios.model(model_name);
    Workload workload = *kScenarios.workload(workload_name);
    workload.global_batch_samples = 1'000;
    constexpr int kBatches = 8;
    SampleDrawer drawer(model, workload, 6);
    double pieces = 0;
    for (int i = 0; i < 1'000 * kBatches; ++i) {
      const SampleLoad sample = drawer.draw();
      pieces += static_cast<double>(sample.vision.size() + sample.audio.size() + sample.llm.size());
    }
    EXPECT_NEAR(expected_pieces(model, workload, kBatches), pieces, 0.02 * pieces) << model_name;
  }
}

}  // namespace
}  // namespace weft::draw_batch_test
