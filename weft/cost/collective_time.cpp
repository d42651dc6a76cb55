#include "weft/cost/collective_time.h"

#include <algorithm>
#include <cmath>

namespace weft {
namespace {

/// What a part of the tensor waits on its way round the ring: n − 1 hops, of which one less than there are nodes leave
/// a node.
double ring_latency_ms(const GroupLink& link) {
  const auto ranks = static_cast<double>(link.num_ranks), nodes = static_cast<double>(link.num_nodes);
  return (nodes - 1) * link.latency_ms + (ranks - nodes) * link.within_latency_ms;
}

double travelling_share(int64_t num_ranks) {
  return 1.0 - 1.0 / static_cast<double>(num_ranks);
}

}  // namespace

double num_tree_hops(int64_t num_ranks) {
  const auto n = static_cast<double>(num_ranks);
  return std::min(n - 1, 2 * std::ceil(std::log2(n)));
}

double all_gather_ms(const GroupLink& link, double bytes) {
  if (link.num_ranks <= 1) return 0;
  return travelling_share(link.num_ranks) * bytes / link.ring_bytes_per_ms + ring_latency_ms(link);
}

double reduce_scatter_ms(const GroupLink& link, double bytes) {
  return all_gather_ms(link, bytes);
}

double all_reduce_ms(const GroupLink& link, double bytes) {
  if (link.num_ranks <= 1) return 0;
  return 2 * (travelling_share(link.num_ranks) * bytes / link.ring_bytes_per_ms +
              std::min(ring_latency_ms(link), num_tree_hops(link.num_ranks) * link.latency_ms));
}

double all_to_all_ms(const GroupLink& link, double bytes) {
  if (link.num_ranks <= 1) return 0;
  const auto ranks = static_cast<double>(link.num_ranks);
  const auto near = static_cast<double>(link.ranks_per_node);
  const double inside_ms = (near - 1) / ranks * bytes / link.within_bytes_per_ms;
  // The group's ranks on a node send through its share of the cards together.
  const double outside_ms = near < ranks ? near * (ranks - near) / ranks * bytes / link.ring_bytes_per_ms : 0;
  return std::max(inside_ms, outside_ms) + num_tree_hops(link.num_ranks) * link.latency_ms;
}

double ring_step_ms(const GroupLink& link, double bytes) {
  return link.num_ranks <= 1 ? 0 : bytes / link.ring_bytes_per_ms + link.latency_ms;
}

}  // namespace weft
