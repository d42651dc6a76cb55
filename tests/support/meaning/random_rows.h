#pragma once

#include <random>

#include "weft/schedule/schedule.h"

// Rows of a pipeline that nobody would make by hand.

namespace weft {

struct RandomRowsShape {
  int32_t num_ranks = 1;
  int32_t num_stages = 1;  ///< at least a stage a rank
  int32_t num_microbatches = 1;
};

/// Stages lie anywhere, and ranks may have different numbers of them; every row is in some order that the data allows,
/// with whole and split backwards side by side.
Schedule random_rows(const RandomRowsShape& shape, std::mt19937_64& random);

}  // namespace weft
