#include "weft/cost/group_link.h"

#include <algorithm>
#include <numeric>
#include <random>

#include <gtest/gtest.h>

#include "weft/plan/module_mesh.h"

namespace weft {
namespace {

/// What the header promises, said of all groups: the most shared way out of a node where any group leaves one.
void expect_slowest(const GroupPlacement& got, const std::vector<GroupPlacement>& all, const std::string& what) {
  EXPECT_NE(std::find(all.begin(), all.end(), got), all.end()) << what << ": is no group's";
  if (all.size() == 1) {
    EXPECT_EQ(got, all.front()) << what;
  }
  int64_t most_shared = 0;
  for (const GroupPlacement& placement : all) most_shared = std::max(most_shared, placement.groups_per_node);
  EXPECT_EQ(got.groups_per_node, most_shared) << what;
}

AxisList axes_named(const Mesh& mesh, const std::vector<std::string>& names) {
  AxisList axes;
  for (size_t axis = 0; axis < mesh.axes().size(); ++axis) {
    if (std::find(names.begin(), names.end(), mesh.axes()[axis].name) != names.end()) axes.push_back(axis);
  }
  return axes;
}

struct Case {
  Cluster cluster;
  ModulePlan module;
  std::string text;
};

Case random_case(std::mt19937_64& random) {
  const auto pick = [&](std::vector<int64_t> values) { return values[random() % values.size()]; };
  Case c;
  c.cluster.devices_per_node = pick({1, 2, 3, 4, 6, 8, 16});
  c.cluster.cards_per_node = pick({1, 2, 4, 8});
  ModulePlan& m = c.module;
  m.tp = pick({1, 1, 2, 3, 4, 8});
  m.cp = pick({1, 1, 2, 4});
  m.dp = pick({1, 2, 3, 4, 8});
  m.pp = pick({1, 1, 2, 3, 4});
  m.axis_order = {"tp", "cp", "dp", "pp"};
  std::shuffle(m.axis_order.begin(), m.axis_order.end(), random);
  std::vector<int64_t> divisors;
  for (int64_t ep = 1; ep <= m.dp * m.cp; ++ep) {
    if (m.dp * m.cp % ep == 0) divisors.push_back(ep);
  }
  m.ep = pick(divisors);
  m.ranks.resize(static_cast<size_t>(m.tp * m.cp * m.dp * m.pp));
  std::iota(m.ranks.begin(), m.ranks.end(), pick({0, 0, 0, 1, 2, 4, 5, 8, 16}));
  if (random() % 8 == 0) std::shuffle(m.ranks.begin(), m.ranks.end(), random);
  for (const std::string& axis : m.axis_order) c.text += axis + " ";
  c.text += "tp " + std::to_string(m.tp) + " cp " + std::to_string(m.cp) + " dp " + std::to_string(m.dp) + " pp " +
            std::to_string(m.pp) + " ep " + std::to_string(m.ep) + " from " + std::to_string(m.ranks.front()) +
            " on nodes of " + std::to_string(c.cluster.devices_per_node);
  return c;
}

TEST(GroupLink, ArithmeticOnMeshesGivesWhatLookingAtEveryGroupGives) {
  std::mt19937_64 random(1);
  for (int trial = 0; trial < 4000; ++trial) {
    const Case c = random_case(random);
    const Mesh mesh = *mesh_of(c.module);
    const Topology topology = *Topology::uniform(c.cluster.devices_per_node, c.cluster.cards_per_node);
    for (const std::vector<std::string>& axes :
         std::vector<std::vector<std::string>>{{"tp"}, {"cp"}, {"dp"}, {"pp"}, {"cp", "dp"}, {"tp", "cp"}}) {
      expect_slowest(placement_along(c.cluster, c.module, axes),
                     distinct_placements(mesh, axes_named(mesh, axes), topology), axes.front() + " of " + c.text);
    }
    if (HasFailure()) return;
  }
}

TEST(GroupLink, ExpertGroupsLieWhereTheExpertViewPutsThem) {
  std::mt19937_64 random(2);
  for (int trial = 0; trial < 4000; ++trial) {
    const Case c = random_case(random);
    const Mesh view = *expert_view(*mesh_of(c.module), c.module.ep);
    const Topology topology = *Topology::uniform(c.cluster.devices_per_node, c.cluster.cards_per_node);
    for (const std::string axis : {"ep", "edp"}) {
      expect_slowest(expert_placement(c.cluster, c.module, axis),
                     distinct_placements(view, axes_named(view, {axis}), topology), axis + " of " + c.text);
    }
    if (HasFailure()) return;
  }
}

Cluster nodes_with_cards(int64_t cards) {
  Cluster cluster{.nodes = 4, .devices_per_node = 8, .within_node = {300, 3}, .between_nodes = {25, 6}};
  cluster.cards_per_node = cards;
  cluster.efficiency.within_node = 0.5;
  cluster.efficiency.between_nodes = 0.8;
  return cluster;
}

GroupPlacement across(int64_t ranks, int64_t per_node, int64_t groups_per_node) {
  return {.link = LinkKind::kBetweenNodes,
          .num_ranks = ranks,
          .num_nodes = ranks / per_node,
          .most_ranks_per_node = per_node,
          .fewest_ranks_per_node = per_node,
          .groups_per_node = groups_per_node};
}

TEST(GroupLink, GroupsThatLeaveANodeTogetherShareItsCards) {
  // Eight groups with a rank each on a node of eight cards: a card each, of which 80 % is reached.
  EXPECT_DOUBLE_EQ(link_of(nodes_with_cards(8), across(4, 1, 8)).ring_bytes_per_ms, 25e6 * 0.8);
  EXPECT_DOUBLE_EQ(link_of(nodes_with_cards(2), across(4, 1, 8)).ring_bytes_per_ms, 25e6 * 0.8 / 4);
  // One rank cannot fill more than its own card, however few groups there are.
  EXPECT_DOUBLE_EQ(link_of(nodes_with_cards(8), across(4, 1, 1)).ring_bytes_per_ms, 25e6 * 0.8);
  // Two groups of four ranks a node: four cards each.
  EXPECT_DOUBLE_EQ(link_of(nodes_with_cards(8), across(16, 4, 2)).ring_bytes_per_ms, 4 * 25e6 * 0.8);
  // One group with all eight cards is held up by its way inside the node.
  EXPECT_DOUBLE_EQ(link_of(nodes_with_cards(8), across(32, 8, 1)).ring_bytes_per_ms, 300e6 * 0.5);
  EXPECT_DOUBLE_EQ(link_of(nodes_with_cards(8), across(4, 1, 8)).latency_ms, 6e-3);
}

TEST(GroupLink, GroupsInsideANodeHaveTheDevicesOwnLinks) {
  const GroupLink link = link_of(nodes_with_cards(1), {.link = LinkKind::kWithinNode,
                                                       .num_ranks = 4,
                                                       .num_nodes = 1,
                                                       .most_ranks_per_node = 4,
                                                       .fewest_ranks_per_node = 4});
  EXPECT_DOUBLE_EQ(link.ring_bytes_per_ms, 300e6 * 0.5);
  EXPECT_DOUBLE_EQ(link.latency_ms, 3e-3);
  EXPECT_EQ(link.num_ranks, 4);
}

}  // namespace
}  // namespace weft
