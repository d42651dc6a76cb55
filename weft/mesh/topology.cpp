#include "weft/mesh/topology.h"

#include <algorithm>
#include <tuple>

#include <fmt/format.h>

namespace weft {
namespace {

Result<int64_t> checked_cards(int64_t cards_per_node) {
  if (cards_per_node >= 1) return cards_per_node;
  return Error{.problem = fmt::format("a node has {} network cards, at least 1 is needed", cards_per_node)};
}

/// The nodes of a group in ascending order, once per rank there.
std::vector<int64_t> sorted_nodes(std::span<const int64_t> group, const Topology& topology) {
  std::vector<int64_t> nodes;
  nodes.reserve(group.size());
  for (const int64_t rank : group) nodes.push_back(topology.node_of(rank));
  if (!std::is_sorted(nodes.begin(), nodes.end())) std::sort(nodes.begin(), nodes.end());
  return nodes;
}

GroupPlacement place(std::span<const int64_t> nodes) {
  GroupPlacement placement{.num_ranks = static_cast<int64_t>(nodes.size()),
                           .fewest_ranks_per_node = static_cast<int64_t>(nodes.size())};
  for (size_t begin = 0, end = 0; begin < nodes.size(); begin = end) {
    while (end < nodes.size() && nodes[end] == nodes[begin]) ++end;
    const auto here = static_cast<int64_t>(end - begin);
    ++placement.num_nodes;
    placement.most_ranks_per_node = std::max(placement.most_ranks_per_node, here);
    placement.fewest_ranks_per_node = std::min(placement.fewest_ranks_per_node, here);
  }
  if (placement.num_ranks > 1)
    placement.link = placement.num_nodes > 1 ? LinkKind::kBetweenNodes : LinkKind::kWithinNode;
  return placement;
}

}  // namespace

Result<Topology> Topology::uniform(int64_t ranks_per_node, int64_t cards_per_node) {
  if (ranks_per_node < 1)
    return Error{.problem = fmt::format("a node has {} ranks, at least 1 is needed", ranks_per_node)};
  Topology topology;
  topology.ranks_per_node_ = ranks_per_node;
  WEFT_TRY(topology.cards_per_node_, checked_cards(cards_per_node));
  return topology;
}

Result<Topology> Topology::listed(std::vector<int64_t> node_of_rank, int64_t cards_per_node) {
  for (size_t rank = 0; rank < node_of_rank.size(); ++rank) {
    if (node_of_rank[rank] < 0)
      return Error{.problem = fmt::format("rank {} is on node {}, which is negative", rank, node_of_rank[rank])};
  }
  Topology topology;
  topology.node_of_rank_ = std::move(node_of_rank);
  WEFT_TRY(topology.cards_per_node_, checked_cards(cards_per_node));
  return topology;
}

bool Topology::knows(int64_t rank) const {
  return rank >= 0 && (ranks_per_node_ > 0 || rank < static_cast<int64_t>(node_of_rank_.size()));
}

int64_t Topology::node_of(int64_t rank) const {
  WEFT_CHECK(knows(rank), "rank {} is on no node of the topology", rank);
  return ranks_per_node_ > 0 ? rank / ranks_per_node_ : node_of_rank_[static_cast<size_t>(rank)];
}

LinkKind Topology::link_between(int64_t rank, int64_t other) const {
  if (rank == other) return LinkKind::kNone;
  return node_of(rank) == node_of(other) ? LinkKind::kWithinNode : LinkKind::kBetweenNodes;
}

std::vector<GroupPlacement> place_groups(const Mesh& mesh, const AxisList& axes, const Topology& topology) {
  const std::vector<std::vector<int64_t>> groups = mesh.groups(axes);
  std::vector<GroupPlacement> placements;
  std::vector<std::vector<int64_t>> nodes_of_group;
  std::vector<int64_t> leaving;  // per node, the groups whose traffic leaves it
  for (const std::vector<int64_t>& group : groups) {
    std::vector<int64_t> nodes = sorted_nodes(group, topology);
    placements.push_back(place(nodes));
    nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
    if (nodes.size() > 1) {
      if (nodes.back() >= std::ssize(leaving)) leaving.resize(static_cast<size_t>(nodes.back()) + 1, 0);
      for (const int64_t node : nodes) ++leaving[static_cast<size_t>(node)];
    }
    nodes_of_group.push_back(std::move(nodes));
  }
  for (size_t group = 0; group < groups.size(); ++group) {
    if (placements[group].link != LinkKind::kBetweenNodes) continue;
    for (const int64_t node : nodes_of_group[group])
      placements[group].groups_per_node =
          std::max(placements[group].groups_per_node, leaving[static_cast<size_t>(node)]);
  }
  return placements;
}

std::vector<GroupPlacement> distinct_placements(const Mesh& mesh, const AxisList& axes, const Topology& topology) {
  std::vector<GroupPlacement> placements = place_groups(mesh, axes, topology);
  const auto key = [](const GroupPlacement& placement) {
    return std::tie(placement.link, placement.num_ranks, placement.num_nodes, placement.most_ranks_per_node,
                    placement.fewest_ranks_per_node, placement.groups_per_node);
  };
  std::sort(placements.begin(), placements.end(),
            [&](const GroupPlacement& a, const GroupPlacement& b) { return key(a) < key(b); });
  placements.erase(std::unique(placements.begin(), placements.end()), placements.end());
  return placements;
}

}  // namespace weft
