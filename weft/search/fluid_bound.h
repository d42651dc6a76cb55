#pragma once

#include <cstdint>

namespace weft {

/// Layers of one kind that may be divided between pipeline ranks in any fractions, and other work that weighs nothing:
/// a relaxation of every placement, whose bottleneck no placement undercuts.
struct FluidChain {
  int64_t pp = 1;
  int64_t microbatches = 1;
  double layers = 0;
  double layer_ms = 0;    ///< forward and backward of one microbatch
  double forward_ms = 0;  ///< what recomputing a layer adds, at least for what it saves
  double static_bytes = 0;
  double activation_bytes = 0;
  double recompute_saves_bytes = 0;
  double other_ms = 0;  ///< embeddings, head, inline encoders
  double memory_bytes = 0;
  double last_rank_bytes = 0;  ///< what the last rank holds besides layers
};

/// The least time that the busiest rank needs for one microbatch; infinite where the layers fit in no way. Rank r holds
/// at least min(pp − r, microbatches) microbatches in flight, in every schedule that has them.
double least_bottleneck_ms(const FluidChain& chain);

}  // namespace weft
