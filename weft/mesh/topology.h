#pragma once

#include <cstdint>
#include <vector>

#include "weft/base/result.h"
#include "weft/mesh/mesh.h"

namespace weft {

/// What traffic between ranks passes through.
enum class LinkKind { kNone, kWithinNode, kBetweenNodes };

/// Which ranks share a node, and how many network cards a node has.
class Topology {
 public:
  /// Nodes of as many ranks each, in rank order: rank r is on node r / ranks_per_node.
  static Result<Topology> uniform(int64_t ranks_per_node, int64_t cards_per_node);
  /// Rank r is on node node_of_rank[r]; there are no other ranks.
  static Result<Topology> listed(std::vector<int64_t> node_of_rank, int64_t cards_per_node);

  int64_t cards_per_node() const { return cards_per_node_; }
  bool knows(int64_t rank) const;
  /// The rank must be known.
  int64_t node_of(int64_t rank) const;
  LinkKind link_between(int64_t rank, int64_t other) const;

  bool operator==(const Topology&) const = default;

 private:
  Topology() = default;

  int64_t ranks_per_node_ = 0;         ///< 0 when the nodes are listed
  std::vector<int64_t> node_of_rank_;  ///< empty when uniform
  int64_t cards_per_node_ = 0;
};

/// How one group of a mesh lies on the nodes: what the price of its collectives depends on.
struct GroupPlacement {
  LinkKind link = LinkKind::kNone;  ///< the slowest link that the group's traffic takes; none for a group of one
  int64_t num_ranks = 0;
  int64_t num_nodes = 0;
  int64_t most_ranks_per_node = 0;
  int64_t fewest_ranks_per_node = 0;  ///< among the nodes that it is on
  /// On the most crowded of its nodes, the groups (this one too) whose traffic leaves that node: they share its cards.
  /// 0 for a group within a node.
  int64_t groups_per_node = 0;

  bool operator==(const GroupPlacement&) const = default;
};

/// One per group of mesh.groups(axes), in that order. The groups are taken to talk at the same time. The topology must
/// know every rank of the mesh.
std::vector<GroupPlacement> place_groups(const Mesh& mesh, const AxisList& axes, const Topology& topology);

/// The same without repetitions: a collective takes as long as on the slowest of these. One entry where the
/// mesh lies evenly on the nodes.
std::vector<GroupPlacement> distinct_placements(const Mesh& mesh, const AxisList& axes, const Topology& topology);

}  // namespace weft
