#pragma once

#include <cstdint>

namespace weft {

/// How a step's samples are dealt out: microbatch after microbatch, in each the data-parallel ranks in turn.
struct BatchOrder {
  int64_t data_parallel = 1;
  int64_t microbatches = 1;
  int64_t mbs = 1;

  int64_t size() const { return data_parallel * microbatches * mbs; }
  /// The place in the batch of sample `place` of a rank's microbatch.
  int64_t index(int64_t rank, int64_t microbatch, int64_t place) const {
    return (microbatch * data_parallel + rank) * mbs + place;
  }
};

}  // namespace weft
