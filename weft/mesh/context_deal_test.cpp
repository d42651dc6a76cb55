#include "weft/mesh/context_deal.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

/// Tiles of `units` units behind a row of their own.
struct Tiles {
  std::vector<int64_t> lengths;
  std::vector<int64_t> firsts;
  int64_t rows = 0;

  Tiles(int64_t count, int64_t units, int64_t unit) {
    for (int64_t tile = 0; tile < count; ++tile) {
      lengths.push_back(1 + units * unit);
      for (int64_t i = 0; i < units; ++i) firsts.push_back(rows + 1 + i * unit);
      rows += lengths.back();
    }
  }
};

TEST(ContextDeal, UnitsBehindARowOfTheirOwnStayTogetherAndAreMadeOnce) {
  for (const int64_t unit : {1, 4, 9}) {
    for (const int64_t units : {1, 4, 9}) {
      for (const int64_t count : {1, 2, 3}) {
        for (const int64_t ranks : {1, 2, 3, 4, 8}) {
          const Tiles tiles(count, units, unit);
          const RowDeal deal = deal_units(tiles.rows, unit, tiles.firsts, PackedSegments(tiles.lengths), ranks);
          ASSERT_EQ(deal.num_rows(), tiles.rows);
          const RowOwners owners(deal);
          int64_t most = 0, all = 0;
          for (int64_t rank = 0; rank < ranks; ++rank) {
            most = std::max(most, deal.num_rows(rank));
            all += deal.num_rows(rank);
          }
          EXPECT_EQ(all, tiles.rows);
          // No rank has more than its share and what cannot be cut.
          EXPECT_LE(most, (tiles.rows + ranks - 1) / ranks + tiles.lengths.front());
          const RowLists made = entries_by_rank(owners, tiles.firsts);
          size_t num_made = 0;
          for (const auto& own : made) num_made += own.size();
          EXPECT_EQ(num_made, tiles.firsts.size());
          for (const int64_t first : tiles.firsts) {
            for (int64_t row = first; row < first + unit; ++row) {
              EXPECT_EQ(owners.rank[static_cast<size_t>(row)], owners.rank[static_cast<size_t>(first)]);
              EXPECT_EQ(owners.place[static_cast<size_t>(row)], owners.place[static_cast<size_t>(first)] + row - first);
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace weft
