#pragma once

#include <string>
#include <vector>

#include "weft/mesh/topology.h"
#include "weft/plan/plan.h"

namespace weft {

/// What the collectives of one kind of group run over, efficiency included.
struct GroupLink {
  int64_t num_ranks = 1;
  int64_t ranks_per_node = 1;      ///< of this group
  int64_t num_nodes = 1;           ///< that the group lies on
  double ring_bytes_per_ms = 0;    ///< what passes a rank in a ring; across nodes, the group's share of a node's cards
  double within_bytes_per_ms = 0;  ///< a device's own links inside the node
  double latency_ms = 0;           ///< of one hop; of one between nodes where the group crosses them
  double within_latency_ms = 0;    ///< of one hop inside a node
  RatesOfCollectives rates{};      ///< in units of the figures above

  const CollectiveRates& of(Collective collective) const { return rates[static_cast<size_t>(collective)]; }
  bool operator==(const GroupLink&) const = default;
};

GroupLink link_of(const Cluster& cluster, const GroupPlacement& placement);

/// How the groups along joined axes of a module's mesh lie on the cluster's nodes: the slowest of them. Regular meshes
/// on consecutive ranks are answered by arithmetic; others are looked at group by group. The plan must be legal.
GroupPlacement placement_along(const Cluster& cluster, const ModulePlan& module, const std::vector<std::string>& axes);

/// The same for the expert view of the mesh: "ep", or "edp", the copies of an expert.
GroupPlacement expert_placement(const Cluster& cluster, const ModulePlan& module, const std::string& axis);

}  // namespace weft
