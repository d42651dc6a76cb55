#include "weft/plan/head_limit.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "weft/mesh/head_share.h"

namespace weft {
namespace {

/// The fewest heads that any rank of any Ulysses group has, 0 where some have none.
int64_t fewest_dealt(const HeadLimit& limit, int64_t tp, int64_t ulysses) {
  int64_t fewest = limit.heads;
  for (int64_t rank = 0; rank < tp; ++rank) {
    const HeadShare share = share_of_heads({.heads = limit.heads, .kv_heads = limit.kv_heads, .head_dim = 1}, tp, rank);
    if (share.num_heads < ulysses) return 0;
    for (int64_t place = 0; place < ulysses; ++place) {
      const HeadShare own =
          share_of_heads({.heads = share.num_heads, .kv_heads = share.num_kv_heads, .head_dim = 1}, ulysses, place);
      fewest = std::min(fewest, own.num_heads);
    }
  }
  return fewest;
}

// The check that comes before a run allows what the run can deal out, and nothing else.
TEST(HeadLimit, AllowsWhatCanBeDealtOut) {
  int64_t num_allowed = 0, num_refused = 0;
  for (int64_t kv_heads = 1; kv_heads <= 8; ++kv_heads) {
    for (int64_t queries = 1; queries <= 7; ++queries) {
      const HeadLimit limit{kv_heads * queries, kv_heads};
      for (int64_t tp = 1; tp <= limit.heads; ++tp) {
        for (int64_t ulysses = 1; ulysses <= limit.heads; ++ulysses) {
          const bool is_allowed = limit.allows(tp, ulysses);
          ++(is_allowed ? num_allowed : num_refused);
          EXPECT_EQ(fewest_dealt(limit, tp, ulysses) > 0, is_allowed)
              << limit.heads << " heads, " << kv_heads << " of keys, tp " << tp << ", Ulysses " << ulysses;
        }
      }
    }
  }
  EXPECT_GT(num_allowed, 1000);
  EXPECT_GT(num_refused, 1000);
  EXPECT_FALSE((HeadLimit{12, 2}.allows(3, 4))) << "two of three ranks share a key head's six queries";
  EXPECT_EQ((HeadLimit{9, 3}.largest_divisor(2, 4)), 2);
}

}  // namespace
}  // namespace weft
