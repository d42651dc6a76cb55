#pragma once

#include <algorithm>

#include "weft/plan/plan.h"

namespace weft {

/// How many ranks of a plan compute on one node at the same time. They share what the node has once: on CPUs cores and
/// memory bandwidth.
inline int64_t busy_ranks(const Plan& plan) {
  return std::min(plan.cluster.devices_per_node, plan.world_size);
}

}  // namespace weft
