#pragma once

#include <cstdint>
#include <span>

namespace weft {

/// Layers of one kind that lie on pipeline ranks in whole numbers but in any order, and other work that may be divided
/// at will and weighs nothing: a relaxation of every placement, whose bottleneck no placement undercuts.
struct FluidChain {
  int64_t pp = 1;
  int64_t microbatches = 1;
  double layers = 0;
  double layer_ms = 0;    ///< forward and backward of one microbatch
  double forward_ms = 0;  ///< what recomputing a layer adds, at least for what it saves
  double static_bytes = 0;
  double activation_bytes = 0;
  double recompute_saves_bytes = 0;
  double other_ms = 0;  ///< inline encoders, and what differs between layers
  double first_ms = 0;  ///< what only the first rank can do: the embedding
  double last_ms = 0;   ///< the same of the last: the head
  double memory_bytes = 0;
  double stage_bytes = 0;      ///< what every stage has on its way, however few its layers
  double passing_bytes = 0;    ///< what every rank has in passing while it runs a stage
  double last_rank_bytes = 0;  ///< what the last rank holds besides layers
  /// The last stage lies where the first does: some layers of every rank are held as little as the last stage's.
  bool comes_back = false;

  /// All of it, spread evenly over the ranks.
  double even_ms() const { return (layers * layer_ms + other_ms + first_ms + last_ms) / static_cast<double>(pp); }
};

/// The least time that the busiest rank needs for one microbatch; infinite where the layers fit in no way. Rank r holds
/// at least in_flight[r] microbatches of each of its layers at once; where that is not given, min(pp − r,
/// microbatches), as every schedule does whose chunks do not come back, and one where they do.
double least_bottleneck_ms(const FluidChain& chain, std::span<const double> in_flight = {});

}  // namespace weft
