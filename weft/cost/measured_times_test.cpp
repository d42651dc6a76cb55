#include "weft/cost/measured_times.h"

#include <cmath>

#include <gtest/gtest.h>

#include "tests/support/cost/example_plan.h"
#include "weft/cost/collective_time.h"

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
    return times.time_of(llm(), llm().layer_kinds.front(), setting, {{length, tokens / length}});
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

TEST_F(MeasuredTimesTest, CarryTheNearestErrorOnOutsideTheTableAndWarn) {
  const AnalyticTimes formula(cluster_);
  const Segments inside = {{512, 8}}, outside = {{512, 80}};
  const double at_end = formula.time_of(llm(), llm().layer_kinds.front(), {}, inside).forward.total_ms();
  const double beyond = formula.time_of(llm(), llm().layer_kinds.front(), {}, outside).forward.total_ms();
  const MeasuredTimes times = table({layer_at(1024, 512, 2), layer_at(4096, 512, 3 * at_end)});
  EXPECT_NEAR(time_of(times, 40960, 512).forward.total_ms(), 3 * beyond, 1e-9);
  EXPECT_EQ(times.warnings(),
            std::vector<std::string>{"llm 'layer' at tp 1 is asked for outside the profile's table and extrapolated"});
}

TEST_F(MeasuredTimesTest, FallBackToTheFormulaForBlocksThatWereNotMeasured) {
  const MeasuredTimes times = table({layer_at(1024, 512, 2)});
  const AnalyticTimes formula(cluster_);
  const Segments segments = {{512, 2}};
  EXPECT_EQ(times.time_of(llm(), llm().exit, {}, segments).forward.total_ms(),
            formula.time_of(llm(), llm().exit, {}, segments).forward.total_ms());
  EXPECT_EQ(times.warnings(),
            std::vector<std::string>{
                "the profile has no llm 'head' at tp 1, attention fused: its time comes from the formula"});
  const BlockTime other = time_of(times, 1024, 512, {.tp = 4});
  EXPECT_NE(other.forward.total_ms(), 2);
  EXPECT_EQ(times.warnings().size(), 2u);
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

/// What a profile would hold of a link with this bandwidth and latency.
LinkMeasurement measured(bool is_between, const std::string& collective, int64_t ranks, double bytes, double gb_per_s,
                         double latency_us) {
  const GroupLink link{.num_ranks = ranks,
                       .ranks_per_node = 1,
                       .num_nodes = is_between ? ranks : 1,
                       .ring_bytes_per_ms = gb_per_s * 1e6,
                       .within_bytes_per_ms = gb_per_s * 1e6,
                       .latency_ms = latency_us * 1e-3,
                       .within_latency_ms = latency_us * 1e-3};
  return {.is_between_nodes = is_between,
          .collective = collective,
          .ranks = ranks,
          .bytes = bytes,
          .ms = collective == "all_reduce" ? all_reduce_ms(link, bytes) : all_gather_ms(link, bytes)};
}

TEST(ApplyLinks, RecoversBandwidthAndLatencyOfWhatWasMeasured) {
  for (const std::string collective : {"all_reduce", "all_gather", "reduce_scatter"}) {
    for (const double smallest : {1e3, 1e5, 1e7}) {
      Cluster cluster = real_cluster();
      Profile profile;
      for (const double bytes : {1e9, smallest, 5e7}) {
        profile.links.push_back(measured(false, collective, 8, bytes, 210, 12));
        profile.links.push_back(measured(true, collective, 4, bytes, 15, 30));
      }
      apply_links(profile, cluster);
      EXPECT_NEAR(cluster.efficiency.within_node * 300, 210, 0.5) << collective << " " << smallest;
      EXPECT_NEAR(cluster.within_node.latency_us, 12, 0.05) << collective << " " << smallest;
      EXPECT_NEAR(cluster.efficiency.between_nodes * 25, 15, 0.05) << collective << " " << smallest;
      EXPECT_NEAR(cluster.between_nodes.latency_us, 30, 0.1) << collective << " " << smallest;
    }
  }
}

TEST(ApplyLinks, LeavesLinksThatWereNotMeasuredAlone) {
  Cluster cluster = real_cluster();
  apply_links({}, cluster);
  EXPECT_EQ(cluster.efficiency.within_node, Efficiency{}.within_node);
  EXPECT_EQ(cluster.within_node.latency_us, 3);
  Profile one;
  one.links = {measured(false, "all_reduce", 8, 1e9, 150, 3)};
  apply_links(one, cluster);
  EXPECT_NEAR(cluster.efficiency.within_node, 0.5, 1e-6) << "the cluster's own latency is taken";
  EXPECT_EQ(cluster.efficiency.between_nodes, Efficiency{}.between_nodes);
}

TEST(ApplyLinks, NoiseThatNoLinkExplainsDoesNotGiveNonsense) {
  // A small message slower than a large one: nothing negative or endless comes of it.
  Cluster cluster = real_cluster();
  Profile profile;
  profile.links = {{.collective = "all_reduce", .ranks = 8, .bytes = 1e3, .ms = 5.0},
                   {.collective = "all_reduce", .ranks = 8, .bytes = 1e6, .ms = 0.5}};
  apply_links(profile, cluster);
  EXPECT_TRUE(std::isfinite(cluster.within_node.latency_us));
  EXPECT_GE(cluster.within_node.latency_us, 0);
  EXPECT_GT(cluster.efficiency.within_node, 0);
  EXPECT_LE(cluster.efficiency.within_node, 1);
}

}  // namespace
}  // namespace weft
