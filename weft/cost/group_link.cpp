#include "weft/cost/group_link.h"

#include <algorithm>
#include <optional>
#include <span>

#include "weft/mesh/expert_axes.h"
#include "weft/plan/module_mesh.h"

namespace weft {
namespace {

/// Groups of `size` ranks, `stride` apart.
struct StridedGroups {
  int64_t stride = 1;
  int64_t size = 1;
};

/// Nothing where the axes are not neighbours in the mesh.
std::optional<StridedGroups> strided(const ModulePlan& module, std::span<const std::string> axes) {
  StridedGroups groups;
  int64_t stride = 1;
  bool has_begun = false, has_ended = false;
  for (const std::string& axis : module.axis_order) {
    const int64_t degree = module.degree(axis);
    const bool is_joined = std::find(axes.begin(), axes.end(), axis) != axes.end();
    if (is_joined && degree > 1) {
      if (has_ended) return std::nullopt;
      if (!has_begun) groups.stride = stride;
      has_begun = true;
      groups.size *= degree;
    } else if (has_begun && degree > 1) {
      has_ended = true;
    }
    stride *= degree;
  }
  return groups;
}

bool is_consecutive(const std::vector<int64_t>& ranks) {
  // In mesh order and without repetitions, so the ends say it.
  return ranks.back() - ranks.front() + 1 == static_cast<int64_t>(ranks.size()) &&
         std::is_sorted(ranks.begin(), ranks.end());
}

/// Nothing where groups or modules lie across nodes unevenly.
std::optional<GroupPlacement> by_arithmetic(const Cluster& cluster, const ModulePlan& module, StridedGroups groups) {
  if (groups.size == 1) {
    return GroupPlacement{
        .link = LinkKind::kNone, .num_ranks = 1, .num_nodes = 1, .most_ranks_per_node = 1, .fewest_ranks_per_node = 1};
  }
  const int64_t node = cluster.devices_per_node;
  const auto num_ranks = static_cast<int64_t>(module.ranks.size());
  if (!is_consecutive(module.ranks)) return std::nullopt;
  const int64_t offset = module.ranks.front() % node;
  const int64_t span = groups.stride * groups.size;
  if (offset + num_ranks <= node || (offset == 0 && span <= node && node % span == 0)) {
    return GroupPlacement{.link = LinkKind::kWithinNode,
                          .num_ranks = groups.size,
                          .num_nodes = 1,
                          .most_ranks_per_node = groups.size,
                          .fewest_ranks_per_node = groups.size};
  }
  if (offset != 0 || num_ranks % node != 0) return std::nullopt;
  if (groups.stride % node == 0) {
    return GroupPlacement{.link = LinkKind::kBetweenNodes,
                          .num_ranks = groups.size,
                          .num_nodes = groups.size,
                          .most_ranks_per_node = 1,
                          .fewest_ranks_per_node = 1,
                          .groups_per_node = node};
  }
  if (groups.stride < node && node % groups.stride == 0 && span % node == 0) {
    return GroupPlacement{.link = LinkKind::kBetweenNodes,
                          .num_ranks = groups.size,
                          .num_nodes = span / node,
                          .most_ranks_per_node = node / groups.stride,
                          .fewest_ranks_per_node = node / groups.stride,
                          .groups_per_node = groups.stride};
  }
  return std::nullopt;
}

/// The placement whose traffic has the narrowest way.
GroupPlacement slowest(const std::vector<GroupPlacement>& placements) {
  const auto speed = [](const GroupPlacement& p) {
    if (p.link != LinkKind::kBetweenNodes) return 1e9 - static_cast<double>(p.num_ranks);
    return 1.0 / static_cast<double>(p.groups_per_node);
  };
  return *std::min_element(placements.begin(), placements.end(),
                           [&](const GroupPlacement& a, const GroupPlacement& b) { return speed(a) < speed(b); });
}

GroupPlacement by_looking(const Cluster& cluster, const Mesh& mesh, std::span<const std::string> axes) {
  const Result<Topology> topology = Topology::uniform(cluster.devices_per_node, cluster.cards_per_node);
  AxisList present;
  for (size_t axis = 0; axis < mesh.axes().size(); ++axis) {
    if (std::find(axes.begin(), axes.end(), mesh.axes()[axis].name) != axes.end()) present.push_back(axis);
  }
  return slowest(distinct_placements(mesh, present, *topology));
}

}  // namespace

GroupLink link_of(const Cluster& cluster, const GroupPlacement& placement) {
  constexpr double kBytesPerMs = 1e6;  // 1 GB/s
  const Efficiency& share = cluster.efficiency;
  GroupLink link{.num_ranks = placement.num_ranks,
                 .ranks_per_node = std::max<int64_t>(1, placement.most_ranks_per_node),
                 .num_nodes = std::clamp<int64_t>(placement.num_nodes, 1, placement.num_ranks),
                 .within_bytes_per_ms = cluster.within_node.bandwidth_gb_per_s * share.within_node * kBytesPerMs,
                 .within_latency_ms = cluster.within_node.latency_us * 1e-3,
                 .rates = placement.link == LinkKind::kBetweenNodes ? cluster.measured.between_nodes
                                                                    : cluster.measured.within_node};
  if (placement.link != LinkKind::kBetweenNodes) {
    link.ring_bytes_per_ms = link.within_bytes_per_ms;
    link.latency_ms = link.within_latency_ms;
    return link;
  }
  const double cards = static_cast<double>(cluster.cards_per_node) /
                       static_cast<double>(std::max<int64_t>(1, placement.groups_per_node));
  link.ring_bytes_per_ms = cards * cluster.between_nodes.bandwidth_gb_per_s * share.between_nodes * kBytesPerMs;
  // A ring that stays inside a node part of the way is no faster than that part, nor can one rank fill many cards.
  link.ring_bytes_per_ms = std::min(
      link.ring_bytes_per_ms,
      link.ranks_per_node > 1
          ? link.within_bytes_per_ms
          : std::max(1.0, static_cast<double>(cluster.cards_per_node) / static_cast<double>(cluster.devices_per_node)) *
                cluster.between_nodes.bandwidth_gb_per_s * share.between_nodes * kBytesPerMs);
  link.latency_ms = cluster.between_nodes.latency_us * 1e-3;
  return link;
}

GroupPlacement placement_along(const Cluster& cluster, const ModulePlan& module, const std::vector<std::string>& axes) {
  if (const auto groups = strided(module, axes)) {
    if (const auto placement = by_arithmetic(cluster, module, *groups)) return *placement;
  }
  return by_looking(cluster, *mesh_of(module), axes);
}

GroupPlacement expert_placement(const Cluster& cluster, const ModulePlan& module, const std::string& axis) {
  const bool over_tp = module.experts_over_tp;
  if (const auto joined = strided(module, expert_axes(over_tp))) {
    const StridedGroups groups = axis == "ep" ? StridedGroups{joined->stride, module.ep}
                                              : StridedGroups{joined->stride * module.ep, joined->size / module.ep};
    if (const auto placement = by_arithmetic(cluster, module, groups)) return *placement;
  }
  return by_looking(cluster, *expert_view(*mesh_of(module), module.ep, over_tp), std::span(&axis, 1));
}

}  // namespace weft
