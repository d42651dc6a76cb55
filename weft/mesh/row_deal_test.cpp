#include "weft/mesh/row_deal.h"

#include <numeric>
#include <random>

#include <gtest/gtest.h>

#include "tests/support/draws.h"

namespace weft {
namespace {

using Ranges = std::vector<Range>;

void expect_every_row_once(const RowDeal& deal, int64_t num_rows) {
  std::vector<int64_t> all;
  for (int64_t rank = 0; rank < deal.num_ranks(); ++rank) {
    const std::vector<int64_t> own = deal.rows(rank);
    EXPECT_EQ(std::ssize(own), deal.num_rows(rank));
    EXPECT_TRUE(std::is_sorted(own.begin(), own.end()));
    all.insert(all.end(), own.begin(), own.end());
  }
  std::sort(all.begin(), all.end());
  std::vector<int64_t> expected(static_cast<size_t>(num_rows));
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(all, expected);
  EXPECT_EQ(deal.num_rows(), num_rows);
}

/// Pairs that a rank's rows attend to.
int64_t num_causal_pairs(const RowDeal& deal, int64_t rank, const std::vector<int64_t>& lengths) {
  int64_t pairs = 0;
  for (const int64_t row : deal.rows(rank)) {
    int64_t begin = 0;
    for (const int64_t length : lengths) {
      if (row < begin + length) break;
      begin += length;
    }
    pairs += row - begin + 1;
  }
  return pairs;
}

TEST(RowDeal, CutsASegmentFromBothEnds) {
  const RowDeal deal = RowDeal::zigzag(std::vector<int64_t>{12}, 3);
  EXPECT_EQ(deal.ranges(0), (Ranges{{0, 2}, {10, 12}}));
  EXPECT_EQ(deal.ranges(1), (Ranges{{2, 4}, {8, 10}}));
  EXPECT_EQ(deal.ranges(2), (Ranges{{4, 8}}));
}

TEST(RowDeal, GivesEveryRankAsManyRowsAndPairs) {
  std::mt19937_64 random(1);
  for (int round = 0; round < draws(200); ++round) {
    const auto num_ranks = static_cast<int64_t>(1 + random() % 8);
    std::vector<int64_t> lengths(1 + random() % 6);
    for (int64_t& length : lengths) length = static_cast<int64_t>(1 + random() % (round % 2 == 0 ? 5 : 3000));
    const int64_t num_rows = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
    const RowDeal deal = RowDeal::zigzag(lengths, num_ranks);
    expect_every_row_once(deal, num_rows);
    std::vector<int64_t> pairs;
    for (int64_t rank = 0; rank < num_ranks; ++rank) {
      EXPECT_GE(deal.num_rows(rank), num_rows / num_ranks);
      EXPECT_LE(deal.num_rows(rank), num_rows / num_ranks + 1);
      pairs.push_back(num_causal_pairs(deal, rank, lengths));
    }
    // What rounding costs is a few rows of at most the longest segment.
    const auto [least, most] = std::minmax_element(pairs.begin(), pairs.end());
    const int64_t longest = *std::max_element(lengths.begin(), lengths.end());
    EXPECT_LE(*most - *least, 2 * static_cast<int64_t>(lengths.size()) * longest);
  }
}

TEST(RowDeal, CutsWhereItIsPreferredIfThatIsNear) {
  const std::vector<int64_t> allowed = {0, 4, 8, 12, 16, 20, 24, 28, 32, 36, 40, 44, 48, 52, 56, 60, 64};
  const RowDeal near = RowDeal::contiguous(64, 2, allowed, std::vector<int64_t>{0, 28, 64});
  EXPECT_EQ(near.ranges(0), (Ranges{{0, 32}})) << "an eighth of a rank's 32 rows is 4, half of that at each end";
  const RowDeal taken = RowDeal::contiguous(64, 2, allowed, std::vector<int64_t>{0, 30, 64});
  EXPECT_EQ(taken.ranges(0), (Ranges{{0, 30}}));
  EXPECT_EQ(taken.ranges(1), (Ranges{{30, 64}}));
  for (const int64_t num_rows : {0, 4, 12, 64}) {
    for (int64_t ranks = 1; ranks <= 8; ++ranks) {
      const auto end = std::upper_bound(allowed.begin(), allowed.end(), num_rows);
      expect_every_row_once(RowDeal::contiguous(num_rows, ranks, std::span(allowed.begin(), end), {}), num_rows);
    }
  }
}

TEST(RowDeal, RefusesRangesThatGoBack) {
  EXPECT_ANY_THROW(RowDeal({{{4, 6}, {0, 2}}}));
}

}  // namespace
}  // namespace weft
