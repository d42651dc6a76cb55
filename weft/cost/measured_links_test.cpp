#include "weft/cost/measured_links.h"

#include <cmath>

#include <gtest/gtest.h>

#include "tests/support/cost/example_plan.h"
#include "weft/cost/collective_time.h"

namespace weft::measured_links_test {
namespace {

Cluster real_cluster() {
  Cluster cluster = ideal_cluster();
  cluster.within_node = {.bandwidth_gb_per_s = 300, .latency_us = 3};
  cluster.between_nodes = {.bandwidth_gb_per_s = 25, .latency_us = 6};
  cluster.efficiency = {};
  return cluster;
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

TEST(ApplyLinks, FitsAllPointsSoThatNoSingleOneDecides) {
  // Eight sizes, each 5 % off, up and down in turn: two of them alone would miss latency or bandwidth by as much.
  Cluster cluster = real_cluster();
  Profile profile;
  double sign = 1;
  for (double bytes = 1e3; bytes < 1e11; bytes *= 10, sign = -sign) {
    profile.links.push_back(measured(false, "all_gather", 8, bytes, 210, 12));
    profile.links.back().ms *= 1 + 0.05 * sign;
  }
  std::vector<LinkSource> sources;
  apply_links(profile, cluster, &sources);
  EXPECT_NEAR(cluster.efficiency.within_node * 300, 210, 0.03 * 210);
  EXPECT_NEAR(cluster.within_node.latency_us, 12, 0.03 * 12);
  ASSERT_EQ(sources.size(), 1u);
  EXPECT_EQ(sources[0].points, 8);
  EXPECT_GT(sources[0].error_percent, 3);
  EXPECT_LT(sources[0].error_percent, 9);
}

TEST(ApplyLinks, CollectivesOfSeveralSizesHaveTheirOwn) {
  Cluster cluster = real_cluster();
  Profile profile;
  for (const double bytes : {1e4, 1e6, 1e9}) {
    profile.links.push_back(measured(false, "all_gather", 8, bytes, 200, 10));
    // An exchange that reaches half of the bandwidth and waits three times as long, and messages that wait less.
    const GroupLink slow{.num_ranks = 8,
                         .ranks_per_node = 8,
                         .ring_bytes_per_ms = 100e6,
                         .within_bytes_per_ms = 100e6,
                         .latency_ms = 30e-3,
                         .within_latency_ms = 30e-3};
    profile.links.push_back({.collective = "all_to_all", .ranks = 8, .bytes = bytes, .ms = all_to_all_ms(slow, bytes)});
    profile.links.push_back({.collective = "send", .ranks = 2, .bytes = bytes, .ms = bytes / 250e6 + 2e-3});
  }
  apply_links(profile, cluster);
  const GroupPlacement eight{.link = LinkKind::kWithinNode, .num_ranks = 8, .num_nodes = 1, .most_ranks_per_node = 8};
  const GroupLink link = link_of(cluster, eight);
  for (const double bytes : {1e5, 1e8}) {
    EXPECT_NEAR(all_gather_ms(link, bytes) / measured(false, "all_gather", 8, bytes, 200, 10).ms, 1, 1e-3);
    const double exchange_ms = 7.0 / 8 * bytes / 100e6 + num_tree_hops(8) * 30e-3;
    EXPECT_NEAR(all_to_all_ms(link, bytes) / exchange_ms, 1, 1e-3);
    EXPECT_NEAR((send_busy_ms(link, bytes) + send_latency_ms(link)) / (bytes / 250e6 + 2e-3), 1, 1e-3);
    // Nothing is known of others: they are as rings are together.
    EXPECT_NEAR(all_reduce_ms(link, bytes) / measured(false, "all_reduce", 8, bytes, 200, 10).ms, 1, 1e-3);
  }
}

}  // namespace
}  // namespace weft::measured_links_test
