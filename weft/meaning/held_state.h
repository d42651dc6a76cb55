#pragma once

#include <cstdint>
#include <vector>

#include "weft/plan/plan.h"

namespace weft {

/// What a rank holds of its weights between the passes of a step, in bytes.
struct HeldState {
  int64_t weights = 0;
  int64_t gradients = 0;
  int64_t optimizer = 0;  ///< master weights apart from the weights, and moments

  HeldState& operator+=(const HeldState& other) {
    weights += other.weights;
    gradients += other.gradients;
    optimizer += other.optimizer;
    return *this;
  }
  bool operator==(const HeldState&) const = default;
};

/// To the byte, with the padding of buckets. The cost model's sums leave that out, and take the largest share of all
/// tensor-parallel ranks for everyone's. The plan must be legal, and offload nothing.
HeldState held_state(const Plan& plan, int64_t rank);

/// By rank, bytes of what it copies to host memory when a checkpoint begins to be saved: what it owns, or its share
/// where ranks own the same. At most: the padding of buckets is counted, and not copied.
std::vector<int64_t> snapshot_bytes(const Plan& plan);

}  // namespace weft
