#include "weft/cost/transition_prices.h"

#include <gtest/gtest.h>

#include "tests/support/draws.h"
#include "weft/mesh/transition.h"

namespace weft {
namespace {

/// One node whose links have no latency, so that time is what the busiest rank receives.
Cluster node_of(int64_t devices) {
  Cluster cluster;
  cluster.name = "node";
  cluster.nodes = 1;
  cluster.devices_per_node = devices;
  cluster.within_node = {.bandwidth_gb_per_s = 1, .latency_us = 0};
  cluster.between_nodes = {.bandwidth_gb_per_s = 1, .latency_us = 0};
  cluster.cards_per_node = 1;
  cluster.efficiency.within_node = 1;
  return cluster;
}

TEST(TransitionPrices, TakeAsLongAsTheCheapestStepsReceive) {
  const std::vector<std::vector<Axis>> meshes{{{"a", 2}}, {{"a", 2}, {"b", 4}}, {{"a", 4}, {"b", 2}}};
  for (const std::vector<Axis>& axes : meshes) {
    const AxisGrid grid = *AxisGrid::create(axes);
    const AxisLinks links = *AxisLinks::create(axes, node_of(grid.num_positions()));
    const std::vector<ProgramDim> dims{{"x", 16, 1}, {"y", 24, 1}, {"z", 8, 1}};
    const TransitionPrices prices(links, dims, 2, {});
    const LayoutCodes& codes = prices.codes();
    for (size_t from = 0; from < codes.count(); ++from) {
      for (size_t to = 0; to < codes.count(); ++to) {
        if (kIsSanitized && (from * 31 + to) % 17 != 0) continue;
        const Layout before = *Layout::create(grid, {16, 24, 8}, codes.states(from));
        const Layout after = *Layout::create(grid, {16, 24, 8}, codes.states(to));
        const double received = 2.0 * static_cast<double>(busiest_received(plan_steps(before, after)));
        EXPECT_NEAR(prices.ms(from, to) * 1e6, received, 1e-2) << before.text() << " to " << after.text();
      }
    }
  }
}

TEST(TransitionPrices, StepsLeadFromTheOneToTheOther) {
  const AxisLinks links = *AxisLinks::create({{"a", 2}, {"b", 4}}, node_of(8));
  const TransitionPrices prices(links, {{"x", 12, 3}, {"y", 5, 1}}, 2, {StepKind::kAllToAll});
  for (size_t from = 0; from < prices.codes().count(); ++from) {
    for (size_t to = 0; to < prices.codes().count(); ++to) {
      size_t at = from;
      double ms = 0;
      for (const PricedStep& step : prices.steps(from, to)) {
        EXPECT_EQ(step.before, at);
        EXPECT_NE(step.kind, StepKind::kAllToAll);
        at = step.after;
        ms += step.ms;
      }
      EXPECT_EQ(at, to);
      EXPECT_NEAR(ms, prices.ms(from, to), 1e-7);
    }
  }
}

TEST(AxisLinks, AMeshThatIsNotTheWorldIsRefused) {
  const Result<AxisLinks> links = AxisLinks::create({{"tp", 4}}, node_of(8));
  ASSERT_FALSE(links);
  EXPECT_NE(links.error().message().find("tp 4 has 4 ranks, but the cluster node has 8 devices"), std::string::npos)
      << links.error().message();
}

}  // namespace
}  // namespace weft
