#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "weft/mesh/layout.h"
#include "weft/mesh/traffic.h"

namespace weft {

enum class StepKind : uint8_t {
  kIdentity,  ///< nothing moves: states that differ only in the gradient's, or on an axis of size 1
  kSlice,     ///< replicated -> shard: keep one's part
  kZeroPad,  ///< replicated -> partial: the first rank keeps its copy, the others zeros; shard -> partial: zeros around
  kAllGather,      ///< shard -> replicated
  kReduceScatter,  ///< partial -> shard
  kAllReduce,      ///< partial -> replicated
  kAllToAll,       ///< shard -> shard of another dim, or of the same dim with other part sizes
};

bool is_collective(StepKind kind);
std::string_view step_name(StepKind kind);

/// One step from a layout to the next: the states of some axes change, all in the same way. A collective runs in every
/// group along these axes, joined (see AxisGrid for the order); the other steps are local. A step cuts or joins at most
/// one dim, or moves the cut from one dim to another.
struct Step {
  StepKind kind = StepKind::kIdentity;
  AxisList axes;      ///< innermost first
  size_t dim = 0;     ///< what is cut (slice, reduce-scatter) or joined (all-gather, all-to-all, zero-pad of shards)
  size_t to_dim = 0;  ///< what an all-to-all cuts
  Layout before;
  Layout after;
  int64_t busiest_received = 0;  ///< elements that the busiest rank receives

  /// "all-gather of dim 1 over tp".
  std::string text() const;
};

/// Whether the rank at a position keeps its elements in a zero-pad: where copies become summands, only the first does.
bool keeps_copy(const Step& step, int64_t position);

/// A rank's traffic in one step. Gathers, scatters and reductions go round a ring in group order, in which every rank
/// sends to the next: a gather brings a rank what it does not hold; a scatter has it send what it does not keep; an
/// all-reduce is a scatter and a gather of balanced flat chunks. With equal parts that is (n-1)/n of the joined tensor,
/// and twice that for an all-reduce. An all-to-all sends each element straight to where it is needed.
Traffic traffic_of(const Step& step, int64_t position);
Traffic traffic_of(std::span<const Step> steps, int64_t position);

/// The price by which transitions are chosen: over the steps, the sum of what the busiest rank receives, in elements.
int64_t busiest_received(std::span<const Step> steps);

/// Elements that the busiest of n ranks receives in an all-reduce.
int64_t all_reduce_received(int64_t num_elements, int64_t num_ranks);

/// "slice of dim 0 over cp, all-reduce over tp", or "nothing".
std::string text(std::span<const Step> steps);

}  // namespace weft
