#pragma once

#include <cstdint>

namespace weft {

/// Sizes at which MPI ranks change their way of doing things. Tests make them small.
struct MpiTuning {
  int64_t most_message_bytes = int64_t{1} << 30;  ///< longer ones go in several; MPI counts in int
  int64_t segment_bytes = int64_t{1} << 19;       ///< of a rank's slice, that is reduced while others are under way
  int64_t small_bytes = int64_t{8} << 10;         ///< inputs up to this are gathered whole and reduced by everyone
  int64_t small_pair_bytes = int64_t{64} << 10;   ///< the same for two ranks, where it moves no more than slices do

  int64_t most_small_bytes(int num_ranks) const { return num_ranks <= 2 ? small_pair_bytes : small_bytes; }
};

}  // namespace weft
