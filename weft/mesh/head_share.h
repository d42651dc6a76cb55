#pragma once

#include <cstdint>

#include "weft/mesh/head_counts.h"

namespace weft {

/// The heads of an attention layer that one of several ranks has.
struct HeadShare {
  int64_t first_head = 0;
  int64_t num_heads = 0;
  int64_t first_kv_head = 0;
  int64_t num_kv_heads = 0;
  /// Ranks with the same key head, where there are fewer of those than ranks; this one is number `place` of `sharers`.
  int64_t sharers = 1;
  int64_t place = 0;
};

/// Key heads are dealt out in order, each with the queries that use it; the first ranks get one more where the number
/// does not divide. Where there are fewer key heads than ranks, neighbours share one and divide its queries. There must
/// be at least as many query heads as ranks.
HeadShare share_of_heads(const HeadCounts& heads, int64_t num_ranks, int64_t rank);

}  // namespace weft
