#pragma once

#include <cstdint>
#include <vector>

#include "weft/comm/operation.h"
#include "weft/mesh/traffic.h"

namespace weft {

/// Bytes that one rank of an operation sends and receives, counted as mesh/ prices steps: gathers, scatters, reductions
/// and broadcasts go round a ring in group order; an all-to-all sends each part straight. A backend may take another
/// way, but none moves less.
Traffic traffic_of(const Operation& operation, int64_t rank, int64_t size);

struct SentBytes {
  int64_t to_rank = 0;  ///< in the group
  int64_t bytes = 0;

  bool operator==(const SentBytes&) const = default;
};

/// The same by receiver; those that get nothing are left out.
std::vector<SentBytes> sent_by_receiver(const Operation& operation, int64_t rank, int64_t size);

}  // namespace weft
