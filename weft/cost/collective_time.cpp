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

/// Every part passes all ranks but one.
double ring_pass_ms(const GroupLink& link, Collective collective, double bytes) {
  if (link.num_ranks <= 1) return 0;
  const CollectiveRates& rates = link.of(collective);
  return travelling_share(link.num_ranks) * bytes / (link.ring_bytes_per_ms * rates.bandwidth) +
         ring_latency_ms(link) * rates.latency;
}

}  // namespace

double num_tree_hops(int64_t num_ranks) {
  const auto n = static_cast<double>(num_ranks);
  return std::min(n - 1, 2 * std::ceil(std::log2(n)));
}

double all_gather_ms(const GroupLink& link, double bytes) {
  return ring_pass_ms(link, Collective::kAllGather, bytes);
}

double reduce_scatter_ms(const GroupLink& link, double bytes) {
  return ring_pass_ms(link, Collective::kReduceScatter, bytes);
}

double all_reduce_ms(const GroupLink& link, double bytes) {
  if (link.num_ranks <= 1) return 0;
  const CollectiveRates& rates = link.of(Collective::kAllReduce);
  return 2 * (travelling_share(link.num_ranks) * bytes / (link.ring_bytes_per_ms * rates.bandwidth) +
              std::min(ring_latency_ms(link), num_tree_hops(link.num_ranks) * link.latency_ms) * rates.latency);
}

double all_to_all_ms(const GroupLink& link, double bytes) {
  if (link.num_ranks <= 1) return 0;
  const CollectiveRates& rates = link.of(Collective::kAllToAll);
  const auto ranks = static_cast<double>(link.num_ranks);
  const auto near = static_cast<double>(link.ranks_per_node);
  const double inside_ms = (near - 1) / ranks * bytes / link.within_bytes_per_ms;
  // The group's ranks on a node send through its share of the cards together.
  const double outside_ms = near < ranks ? near * (ranks - near) / ranks * bytes / link.ring_bytes_per_ms : 0;
  return std::max(inside_ms, outside_ms) / rates.bandwidth +
         num_tree_hops(link.num_ranks) * link.latency_ms * rates.latency;
}

double ring_step_ms(const GroupLink& link, double bytes) {
  return link.num_ranks <= 1 ? 0 : send_busy_ms(link, bytes) + send_latency_ms(link);
}

double send_busy_ms(const GroupLink& link, double bytes) {
  return bytes / (link.ring_bytes_per_ms * link.of(Collective::kSend).bandwidth);
}

double send_latency_ms(const GroupLink& link) {
  return link.latency_ms * link.of(Collective::kSend).latency;
}

}  // namespace weft
