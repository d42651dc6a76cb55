#include "weft/mesh/topology.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

TEST(Topology, RanksInOrderFillTheNodes) {
  const Topology topology = *Topology::uniform(8, 4);
  EXPECT_EQ(topology.node_of(7), 0);
  EXPECT_EQ(topology.node_of(16), 2);
  EXPECT_EQ(topology.link_between(3, 3), LinkKind::kNone);
  EXPECT_EQ(topology.link_between(0, 7), LinkKind::kWithinNode);
  EXPECT_EQ(topology.link_between(7, 8), LinkKind::kBetweenNodes);
}

TEST(Topology, NodesMayBeListedRankByRank) {
  const Topology topology = *Topology::listed({5, 2, 5}, 1);
  EXPECT_EQ(topology.link_between(0, 2), LinkKind::kWithinNode);
  EXPECT_EQ(topology.link_between(0, 1), LinkKind::kBetweenNodes);
  EXPECT_FALSE(topology.knows(3));
  EXPECT_THROW((void)topology.node_of(3), InternalError);
}

TEST(Topology, MistakesAreNamed) {
  EXPECT_EQ(Topology::uniform(0, 1).error().message(), "a node has 0 ranks, at least 1 is needed");
  EXPECT_EQ(Topology::uniform(8, 0).error().message(), "a node has 0 network cards, at least 1 is needed");
  EXPECT_EQ(Topology::listed({0, -1}, 1).error().message(), "rank 1 is on node -1, which is negative");
}

TEST(Topology, GroupsWithinANodeTouchNoCards) {
  const Mesh mesh = *Mesh::contiguous({{"tp", 4}, {"dp", 4}});
  const auto placements = place_groups(mesh, {0}, *Topology::uniform(8, 8));
  ASSERT_EQ(placements.size(), 4u);
  for (const GroupPlacement& placement : placements) {
    EXPECT_EQ(placement, (GroupPlacement{.link = LinkKind::kWithinNode,
                                         .num_ranks = 4,
                                         .num_nodes = 1,
                                         .most_ranks_per_node = 4,
                                         .fewest_ranks_per_node = 4,
                                         .groups_per_node = 0}));
  }
}

TEST(Topology, GroupsAcrossNodesShareTheCards) {
  const Mesh mesh = *Mesh::contiguous({{"tp", 4}, {"dp", 4}});
  const auto placements = distinct_placements(mesh, {1}, *Topology::uniform(8, 8));
  // Four data-parallel groups, each with two ranks on both nodes.
  ASSERT_EQ(placements.size(), 1u);
  EXPECT_EQ(placements[0], (GroupPlacement{.link = LinkKind::kBetweenNodes,
                                           .num_ranks = 4,
                                           .num_nodes = 2,
                                           .most_ranks_per_node = 2,
                                           .fewest_ranks_per_node = 2,
                                           .groups_per_node = 4}));
}

TEST(Topology, AGroupOfOneHasNoTraffic) {
  const Mesh mesh = *Mesh::contiguous({{"tp", 1}, {"dp", 16}});
  const auto placements = distinct_placements(mesh, {0}, *Topology::uniform(8, 8));
  ASSERT_EQ(placements.size(), 1u);
  EXPECT_EQ(placements[0].link, LinkKind::kNone);
  EXPECT_EQ(placements[0].groups_per_node, 0);
}

TEST(Topology, AMeshThatLiesUnevenlyHasSeveralPlacements) {
  // Groups {0,1,2}, {3,4,5} and {6,7,8} on nodes of four ranks: the last two cross, and node 1 holds parts of both.
  const Mesh mesh = *Mesh::contiguous({{"tp", 3}, {"dp", 3}});
  const auto placements = place_groups(mesh, {0}, *Topology::uniform(4, 1));
  ASSERT_EQ(placements.size(), 3u);
  EXPECT_EQ(placements[0].link, LinkKind::kWithinNode);
  EXPECT_EQ(placements[1].link, LinkKind::kBetweenNodes);
  EXPECT_EQ(placements[1].most_ranks_per_node, 2);
  EXPECT_EQ(placements[1].fewest_ranks_per_node, 1);
  EXPECT_EQ(placements[1].groups_per_node, 2);
  EXPECT_EQ(placements[2].groups_per_node, 2);
  EXPECT_EQ(distinct_placements(mesh, {0}, *Topology::uniform(4, 1)).size(), 2u);
}

TEST(Topology, SixteenThousandRanksArePlacedAsInTheDefaultOrder) {
  const Mesh mesh = *Mesh::contiguous({{"tp", 8}, {"cp", 4}, {"dp", 32}, {"pp", 16}});
  const Topology topology = *Topology::uniform(8, 8);
  EXPECT_EQ(distinct_placements(mesh, {0}, topology)[0].link, LinkKind::kWithinNode);
  const auto across = distinct_placements(mesh, {1, 2}, topology);
  ASSERT_EQ(across.size(), 1u);
  EXPECT_EQ(across[0].num_nodes, 128);
  EXPECT_EQ(across[0].groups_per_node, 8);
}

}  // namespace
}  // namespace weft
