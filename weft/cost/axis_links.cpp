#include "weft/cost/axis_links.h"

#include <algorithm>

#include <fmt/format.h>

#include "weft/base/text.h"
#include "weft/cost/collective_time.h"

namespace weft {

Result<AxisLinks> AxisLinks::create(const std::vector<Axis>& axes, const Cluster& cluster) {
  if (axes.size() > kMostAxes)
    return Error{.source = "--mesh",
                 .problem = fmt::format("has {} axes, at most {} are possible", axes.size(), kMostAxes),
                 .advice = "Join some."};
  WEFT_TRY(const Mesh mesh, Mesh::contiguous(axes));
  if (mesh.num_ranks() != cluster.num_devices()) {
    const int64_t ranks = mesh.num_ranks();
    const bool can_be = ranks % cluster.devices_per_node == 0;
    return Error{.source = "--mesh",
                 .problem = fmt::format("{} has {} ranks, but the cluster {} has {} devices", mesh.grid().text(),
                                        with_commas(ranks), cluster.name, with_commas(cluster.num_devices())),
                 .advice = can_be ? fmt::format("Add --nodes {}.", ranks / cluster.devices_per_node)
                                  : "The mesh must be all of the cluster's devices."};
  }
  AxisLinks links;
  links.grid_ = mesh.grid();
  WEFT_TRY(const Topology topology, Topology::uniform(cluster.devices_per_node, cluster.cards_per_node));
  for (unsigned mask = 0; mask < (1u << axes.size()); ++mask) {
    AxisList joined;
    for (size_t axis = 0; axis < axes.size(); ++axis) {
      if ((mask >> axis & 1u) != 0) joined.push_back(axis);
    }
    // Groups wait for the slowest.
    std::optional<GroupLink> slowest;
    for (const GroupPlacement& placement : distinct_placements(mesh, joined, topology)) {
      const GroupLink link = link_of(cluster, placement);
      if (!slowest || link.ring_bytes_per_ms < slowest->ring_bytes_per_ms) slowest = link;
    }
    links.links_.push_back(*slowest);
  }
  return links;
}

AxisLinks AxisLinks::of_one(const Axis& axis, const GroupLink& link) {
  AxisLinks links;
  links.grid_ = *AxisGrid::create({axis});
  links.links_ = {GroupLink{}, link};
  return links;
}

int64_t AxisLinks::num_ranks(unsigned mask) const {
  int64_t product = 1;
  for (size_t axis = 0; axis < num_axes(); ++axis) {
    if ((mask >> axis & 1u) != 0) product *= grid_.size(axis);
  }
  return product;
}

double AxisLinks::step_ms(StepKind kind, unsigned mask, double local_bytes) const {
  const GroupLink& link = along(mask);
  switch (kind) {
    case StepKind::kAllGather:
      return all_gather_ms(link, local_bytes);
    case StepKind::kReduceScatter:
      return reduce_scatter_ms(link, local_bytes);
    case StepKind::kAllReduce:
      return all_reduce_ms(link, local_bytes);
    case StepKind::kAllToAll:
      return all_to_all_ms(link, local_bytes);
    case StepKind::kIdentity:
    case StepKind::kSlice:
    case StepKind::kZeroPad:
      break;
  }
  return 0;
}

}  // namespace weft
