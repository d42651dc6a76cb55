#include "weft/mesh/head_share.h"

#include "weft/base/check.h"
#include "weft/mesh/split.h"

namespace weft {

HeadShare share_of_heads(const HeadCounts& heads, int64_t num_ranks, int64_t rank) {
  WEFT_CHECK(heads.heads >= num_ranks, "{} heads over {} ranks", heads.heads, num_ranks);
  const int64_t queries_per_key = heads.heads / heads.kv_heads;
  if (heads.kv_heads >= num_ranks) {
    const Range keys = balanced_part({0, heads.kv_heads}, num_ranks, rank);
    return {.first_head = keys.begin * queries_per_key,
            .num_heads = (keys.end - keys.begin) * queries_per_key,
            .first_kv_head = keys.begin,
            .num_kv_heads = keys.end - keys.begin};
  }
  // Which ranks a key belongs to is the ranks' split over the keys.
  for (int64_t key = 0; key < heads.kv_heads; ++key) {
    const Range ranks = balanced_part({0, num_ranks}, heads.kv_heads, key);
    if (rank < ranks.begin || rank >= ranks.end) continue;
    const int64_t sharers = ranks.end - ranks.begin;
    WEFT_CHECK(queries_per_key >= sharers, "{} queries of a key over {} ranks", queries_per_key, sharers);
    const Range queries = balanced_part({0, queries_per_key}, sharers, rank - ranks.begin);
    return {.first_head = key * queries_per_key + queries.begin,
            .num_heads = queries.end - queries.begin,
            .first_kv_head = key,
            .num_kv_heads = 1,
            .sharers = sharers,
            .place = rank - ranks.begin};
  }
  WEFT_CHECK(false, "rank {} of {} has no key head", rank, num_ranks);
}

}  // namespace weft
