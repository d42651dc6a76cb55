#include "weft/cost/measured_times.h"

#include <cmath>

#include <gtest/gtest.h>

#include "tests/support/cost/example_plan.h"
#include "weft/program/program_blocks.h"
#include "weft/program/program_strategy.h"

namespace weft {
namespace {

Cluster real_cluster() {
  Cluster cluster = ideal_cluster();
  cluster.device.memory_bandwidth_gb_per_s = 2000;
  cluster.within_node = {.bandwidth_gb_per_s = 300, .latency_us = 3};
  cluster.between_nodes = {.bandwidth_gb_per_s = 25, .latency_us = 6};
  cluster.efficiency = {};
  return cluster;
}

class MeasuredTimesTest : public testing::Test {
 protected:
  BlockMeasurement layer_at(double tokens, double length, double forward_ms) const {
    return {.shape = {.block = "layer", .tokens = tokens, .sequence_tokens = length},
            .forward_ms = forward_ms,
            .backward_input_ms = 1.3 * forward_ms,
            .backward_weight_ms = 0.9 * forward_ms};
  }
  BlockTime time_of(const MeasuredTimes& times, double tokens, double length, const BlockSetting& setting = {}) const {
    return times.time_of(llm(), llm().distinct_layers.front(), setting, {{length, tokens / length}});
  }
  MeasuredTimes table(std::vector<BlockMeasurement> blocks) const {
    Profile profile;
    profile.source = "p.json";
    profile.blocks = std::move(blocks);
    return MeasuredTimes(cluster_, model_, profile);
  }
  const Module& llm() const { return model_.modules.front(); }

  Cluster cluster_ = real_cluster();
  Model model_ = gpt_model({});
};

TEST_F(MeasuredTimesTest, PassThroughEveryMeasuredPoint) {
  const std::vector<BlockMeasurement> points = {layer_at(4096, 1024, 9.7), layer_at(1024, 512, 1.1),
                                                layer_at(512, 512, 0.7), layer_at(2048, 1024, 4.4)};
  const MeasuredTimes times = table(points);
  for (const BlockMeasurement& point : points) {
    const BlockTime time = time_of(times, point.shape.tokens, point.shape.sequence_tokens);
    EXPECT_NEAR(time.forward.total_ms(), point.forward_ms, 1e-9);
    EXPECT_NEAR(time.backward_input.total_ms(), point.backward_input_ms, 1e-9);
    EXPECT_NEAR(time.backward_weight.total_ms(), point.backward_weight_ms, 1e-9);
  }
  EXPECT_TRUE(times.warnings().empty()) << times.warnings().front();
}

TEST_F(MeasuredTimesTest, LieBetweenTheMeasurementsBetweenThem) {
  const MeasuredTimes times = table({layer_at(1024, 512, 2), layer_at(4096, 512, 10)});
  double before = 2;
  for (double tokens = 1100; tokens < 4096; tokens += 100) {
    const double ms = time_of(times, tokens, 512).forward.total_ms();
    EXPECT_GT(ms, before) << tokens;
    EXPECT_LT(ms, 10) << tokens;
    before = ms;
  }
  EXPECT_TRUE(times.warnings().empty());
}

TEST_F(MeasuredTimesTest, CarryTheNearestErrorOnOutsideTheTableAndSaySo) {
  const AnalyticTimes formula(cluster_);
  const Segments inside = {{512, 8}}, outside = {{512, 80}};
  const double at_end = formula.time_of(llm(), llm().distinct_layers.front(), {}, inside).forward.total_ms();
  const double beyond = formula.time_of(llm(), llm().distinct_layers.front(), {}, outside).forward.total_ms();
  const MeasuredTimes times = table({layer_at(1024, 512, 2), layer_at(4096, 512, 3 * at_end)});
  EXPECT_NEAR(time_of(times, 40960, 512).forward.total_ms(), 3 * beyond, 1e-9);
  ASSERT_EQ(times.sources().size(), 1u);
  EXPECT_EQ(times.sources()[0].kind, BlockSource::Kind::kExtrapolated);
  EXPECT_EQ(times.sources()[0].points, 2);
}

TEST_F(MeasuredTimesTest, FallBackToTheFormulaForBlocksThatWereNotMeasured) {
  const MeasuredTimes times = table({layer_at(1024, 512, 2)});
  const AnalyticTimes formula(cluster_);
  const Segments segments = {{512, 2}};
  EXPECT_EQ(times.time_of(llm(), llm().exit, {}, segments).forward.total_ms(),
            formula.time_of(llm(), llm().exit, {}, segments).forward.total_ms());
  ASSERT_EQ(times.sources().size(), 1u);
  EXPECT_EQ(times.sources()[0].kind, BlockSource::Kind::kFormula);
  EXPECT_EQ(times.sources()[0].asked.block, "head");
}

TEST_F(MeasuredTimesTest, SayWhetherAPointWasMeasuredOrReadBetweenOthers) {
  const MeasuredTimes times = table({layer_at(1024, 512, 2), layer_at(2048, 512, 5), layer_at(4096, 512, 10)});
  time_of(times, 2048, 512);
  EXPECT_EQ(times.sources()[0].kind, BlockSource::Kind::kMeasured);
  time_of(times, 3000, 512);
  EXPECT_EQ(times.sources()[0].kind, BlockSource::Kind::kInterpolated);
}

TEST_F(MeasuredTimesTest, ASettingThatWasNotMeasuredHasTheErrorOfTheNearest) {
  const AnalyticTimes formula(cluster_);
  const auto formula_at = [&](const BlockSetting& setting, double tokens) {
    return formula.time_of(llm(), llm().distinct_layers.front(), setting, {{512, tokens / 512}}).forward.compute_ms;
  };
  BlockMeasurement two = layer_at(4096, 512, 3 * formula_at({.tp = 2}, 4096));
  two.shape.tp = 2;
  const MeasuredTimes times = table({layer_at(4096, 512, 2 * formula_at({}, 4096)), two});
  // tp 4 from tp 2; cp 2 of twice the tokens from one device.
  EXPECT_NEAR(time_of(times, 4096, 512, {.tp = 4}).forward.compute_ms, 3 * formula_at({.tp = 4}, 4096), 1e-9);
  EXPECT_NEAR(time_of(times, 8192, 512, {.cp = 2}).forward.compute_ms, 2 * formula_at({.cp = 2}, 8192), 1e-9);
  for (const BlockSource& source : times.sources()) {
    EXPECT_EQ(source.kind, BlockSource::Kind::kCarriedOver);
    EXPECT_EQ(source.taken_from.tp, source.asked.tp == 4 ? 2 : 1);
  }
}

TEST_F(MeasuredTimesTest, WhatABlockDoesNotFeelIsNoOtherSetting) {
  BlockMeasurement head{.shape = {.block = "head", .cp = 2, .tokens = 2048, .sequence_tokens = 1024},
                        .forward_ms = 7,
                        .backward_input_ms = 8,
                        .backward_weight_ms = 9};
  const MeasuredTimes times = table({head});
  // 1024 rows of one rank, whatever divides sequences, experts and heads of attention.
  const BlockSetting setting{.ep = 4, .sequence_parallel = true, .attention = AttentionKernel::kUnfused};
  const BlockTime time = times.time_of(llm(), llm().exit, setting, {{64, 16}});
  EXPECT_NEAR(time.forward.compute_ms, 7, 1e-9);
  EXPECT_NEAR(time.backward_weight.compute_ms, 9, 1e-9);
  EXPECT_EQ(times.sources()[0].kind, BlockSource::Kind::kMeasured);
}

TEST_F(MeasuredTimesTest, OfBusyRanksTheNearestFromBelowCount) {
  std::vector<BlockMeasurement> points;
  for (const int64_t busy : {1, 2, 8}) {
    points.push_back(layer_at(1024, 512, static_cast<double>(busy)));
    points.back().shape.busy_ranks = busy;
  }
  Profile profile;
  profile.blocks = points;
  for (const auto& [asked, ms] : {std::pair{1, 1.0}, {2, 2.0}, {4, 2.0}, {16, 8.0}}) {
    const MeasuredTimes times(cluster_, model_, profile, asked);
    EXPECT_NEAR(time_of(times, 1024, 512).forward.total_ms(), ms, 1e-9) << asked;
  }
  profile.blocks.erase(profile.blocks.begin());
  EXPECT_NEAR(time_of(MeasuredTimes(cluster_, model_, profile, 1), 1024, 512).forward.total_ms(), 2, 1e-9);
}

TEST_F(MeasuredTimesTest, AttentionApartIsWhatItsRecomputationTakes) {
  BlockMeasurement point = layer_at(1024, 512, 2);
  point.attention_ms = 0.7;
  EXPECT_NEAR(time_of(table({point}), 1024, 512).attention.total_ms(), 0.7, 1e-9);
}

TEST_F(MeasuredTimesTest, BytesTakeThePlaceOfTheFormulas) {
  BlockMeasurement point = layer_at(1024, 512, 2);
  point.kept_bytes = 3e6;
  point.forward_peak_bytes = 3.5e6;
  point.backward_peak_bytes = 5e6;
  const MeasuredTimes times = table({point});
  const Block& layer = llm().distinct_layers.front();
  const BlockMemory at_point = times.memory_of(llm(), layer, {}, {{512, 2}});
  EXPECT_NEAR(at_point.saved, 3e6, 1);
  EXPECT_NEAR(at_point.workspace, 2e6, 1);
  EXPECT_LE(at_point.saved_full, at_point.saved);
  // Twice the rows, twice the bytes, as the formula has it.
  EXPECT_NEAR(times.memory_of(llm(), layer, {}, {{512, 4}}).saved, 6e6, 2);
  EXPECT_EQ(table({layer_at(1024, 512, 2)}).memory_of(llm(), layer, {}, {{512, 2}}).saved,
            memory_of(llm(), layer, {}, {{512, 2}}).saved);
}

TEST_F(MeasuredTimesTest, WhatAFirstBlockTakesInABackwardIsForItsWeights) {
  const BlockMeasurement embedding{.shape = {.block = "embedding", .tokens = 1024, .sequence_tokens = 512},
                                   .forward_ms = 1,
                                   .backward_input_ms = 3,
                                   .backward_weight_ms = 0.5,
                                   .forward_peak_bytes = 1e6};
  const MeasuredTimes times = table({embedding});
  EXPECT_NEAR(times.time_of(llm(), llm().entry, {}, {{512, 2}}).backward_weight.total_ms(), 3.5, 1e-9);
  EXPECT_EQ(times.memory_of(llm(), llm().entry, {}, {{512, 2}}).saved, 0) << "tokens are others'";
}

TEST_F(MeasuredTimesTest, HideCommunicationBehindWhatWasMeasured) {
  // Ten times as slow as the formula: nothing of the gradient's communication is left to see.
  BlockSetting setting{.tp = 2, .overlap_tp = true};
  setting.tp_link = {.num_ranks = 2, .ranks_per_node = 2, .ring_bytes_per_ms = 1e6, .within_bytes_per_ms = 1e6};
  const AnalyticTimes formula(cluster_);
  const BlockTime by_formula = formula.time_of(llm(), llm().distinct_layers.front(), setting, {{512, 2}});
  ASSERT_GT(by_formula.backward_input.tp_ms, 0);
  BlockMeasurement slow = layer_at(1024, 512, 100 * by_formula.forward.compute_ms);
  slow.shape.tp = 2;
  EXPECT_EQ(time_of(table({slow}), 1024, 512, setting).backward_input.tp_ms, 0);
}

TEST_F(MeasuredTimesTest, MeasurementsOfBlocksThatTheModelLacksAreTold) {
  BlockMeasurement unknown = layer_at(512, 512, 1);
  unknown.shape.block = "adapter";
  EXPECT_EQ(table({unknown}).warnings(),
            std::vector<std::string>{"p.json: measures the block 'adapter' of llm, which gpt does not have"});
}

TEST_F(MeasuredTimesTest, CommunicationIsAddedToWhatOneDeviceMeasured) {
  BlockMeasurement measured = layer_at(1024, 512, 50);
  measured.shape.tp = 2;
  const MeasuredTimes times = table({measured});
  BlockSetting setting{.tp = 2, .overlap_tp = false};
  setting.tp_link = {
      .num_ranks = 2, .ranks_per_node = 2, .ring_bytes_per_ms = 1e6, .within_bytes_per_ms = 1e6, .latency_ms = 0};
  const BlockTime time = time_of(times, 1024, 512, setting);
  EXPECT_NEAR(time.forward.tp_ms, 4 * 0.5 * 1024 * 1024 * 2 / 1e6, 1e-9);
  EXPECT_NEAR(time.forward.compute_ms, 50, 1e-6);
}

TEST_F(MeasuredTimesTest, AStrategyIsToItsLayerAsFormulasSayUnlessBothWereMeasured) {
  Model model = model_;
  const std::string kind = llm().distinct_layers.front().name;
  const BlockEntries entries = {{kind, {{.pattern = "mlp.*", .words = {{"tp", "cut s"}}}}}};
  model.modules.front() = *with_strategy(llm(), entries, 2);
  const Module& changed = model.modules.front();
  const Block& layer = changed.distinct_layers.front();
  ASSERT_TRUE(layer.program);
  BlockSetting setting{.tp = 2, .overlap_tp = false};
  setting.tp_link = {
      .num_ranks = 2, .ranks_per_node = 2, .ring_bytes_per_ms = 1e6, .within_bytes_per_ms = 1e6, .latency_ms = 0};
  const Segments segments = {{512, 2}};
  const AnalyticTimes formula(cluster_);
  const BlockTime usual = formula.time_of(llm(), llm().distinct_layers.front(), setting, segments, {});
  const BlockTime plain = formula.time_of(changed, layer, setting, segments, {});
  const auto measured = [&](const BlockTime& time, double factor, const std::string& strategy) {
    return BlockMeasurement{
        .shape = {.block = kind, .strategy = strategy, .tp = 2, .tokens = 1024, .sequence_tokens = 512},
        .forward_ms = factor * time.forward.compute_ms,
        .backward_input_ms = factor * time.backward_input.compute_ms,
        .backward_weight_ms = factor * time.backward_weight.compute_ms};
  };
  const auto expect = [&](std::vector<BlockMeasurement> blocks, double factor, BlockSource::Kind source) {
    Profile profile;
    profile.blocks = std::move(blocks);
    const MeasuredTimes times(cluster_, model, profile);
    const BlockTime time = times.time_of(changed, layer, setting, segments);
    EXPECT_NEAR(time.forward.compute_ms, factor * plain.forward.compute_ms, 1e-9);
    EXPECT_NEAR(time.backward_input.compute_ms, factor * plain.backward_input.compute_ms, 1e-9);
    EXPECT_NEAR(time.backward_weight.compute_ms, factor * plain.backward_weight.compute_ms, 1e-9);
    EXPECT_NEAR(time.forward.tp_ms, plain.forward.tp_ms, 1e-12) << "links are the formula's";
    ASSERT_EQ(times.sources().size(), 1u);
    EXPECT_EQ(times.sources()[0].kind, source);
    EXPECT_TRUE(times.warnings().empty());
  };
  const std::string& words = layer.program->words;
  expect({measured(usual, 3, "")}, 3, BlockSource::Kind::kRelative);
  expect({measured(usual, 3, ""), measured(plain, 2, words)}, 2, BlockSource::Kind::kMeasured);
  // Beside a formula a measurement says nothing of what is gained.
  Profile alone;
  alone.blocks = {measured(plain, 2, words)};
  const MeasuredTimes times(cluster_, model, alone);
  EXPECT_EQ(times.time_of(changed, layer, setting, segments).forward.total_ms(),
            formula.time_of(changed, layer, setting, segments).forward.total_ms());
  // Another strategy's measurement is not this one's.
  expect({measured(usual, 3, ""), measured(plain, 2, "out cut s")}, 3, BlockSource::Kind::kRelative);
}

// A device that follows a law of its own, nothing like the formula: launches, products whose rate falls with few rows,
// attention by pairs. What it would measure, with no noise.
struct FakeDevice {
  double forward_ms(double tokens, double length) const {
    return 0.3 + tokens * 1e-3 * (1 + 40 / std::sqrt(tokens)) + tokens * length * 2e-7;
  }
  BlockMeasurement measure(double tokens, double length) const {
    const double forward = forward_ms(tokens, length);
    return {.shape = {.block = "layer", .tokens = tokens, .sequence_tokens = length},
            .forward_ms = forward,
            .backward_input_ms = 1.2 * forward + 0.1,
            .backward_weight_ms = 0.8 * forward};
  }
};

TEST_F(MeasuredTimesTest, OfAnotherLawLieWithinTheStatedErrorBetweenPoints) {
  const FakeDevice device;
  std::vector<BlockMeasurement> points;
  for (double tokens = 512; tokens <= 16384; tokens *= 2) {
    for (const double length : {256.0, 512.0}) points.push_back(device.measure(tokens, length));
  }
  const MeasuredTimes times = table(points);
  time_of(times, 512, 256);
  const BlockSource source = times.sources()[0];
  EXPECT_EQ(source.points, 12);
  ASSERT_TRUE(source.error.has_value());
  EXPECT_GT(source.error->most_percent, 0);
  EXPECT_LT(source.error->most_percent, 25);
  EXPECT_LT(source.error->mean_percent, source.error->most_percent);
  double worst = 0;
  for (double tokens = 520; tokens < 16384; tokens *= 1.07) {
    for (const double length : {256.0, 300.0, 400.0, 512.0}) {
      const BlockMeasurement law = device.measure(tokens, length);
      const BlockTime time = time_of(times, tokens, length);
      const double expected = law.forward_ms + law.backward_input_ms + law.backward_weight_ms;
      const double got = time.forward.total_ms() + time.backward_input.total_ms() + time.backward_weight.total_ms();
      worst = std::max(worst, 100 * std::abs(got / expected - 1));
    }
  }
  EXPECT_LE(worst, source.error->most_percent);
  // The formula alone is nowhere near.
  const BlockTime formula = AnalyticTimes(cluster_).time_of(llm(), llm().distinct_layers.front(), {}, {{512, 4}});
  EXPECT_GT(device.forward_ms(2048, 512) / formula.forward.total_ms(), 2);
}

}  // namespace
}  // namespace weft
