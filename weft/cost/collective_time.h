#pragma once

#include "weft/cost/group_link.h"

namespace weft {

// Times of collectives, latency and bandwidth: `bytes` is the whole tensor as it is when joined; for all_to_all_ms what
// each rank holds. A group of one takes no time.

/// Hops up and down a tree, or round a ring where that is shorter: of an all-reduce's two halves.
double num_tree_hops(int64_t num_ranks);

double all_gather_ms(const GroupLink& link, double bytes);
double reduce_scatter_ms(const GroupLink& link, double bytes);
double all_reduce_ms(const GroupLink& link, double bytes);
double all_to_all_ms(const GroupLink& link, double bytes);
/// Each rank passes `bytes` to its neighbour in the ring, once.
double ring_step_ms(const GroupLink& link, double bytes);

/// A message between two ranks: how long it keeps its sender's channel, and what it waits besides.
double send_busy_ms(const GroupLink& link, double bytes);
double send_latency_ms(const GroupLink& link);

}  // namespace weft
