#include "weft/mesh/context_blocks.h"

#include <numeric>
#include <random>

#include <gtest/gtest.h>

#include "tests/support/draws.h"
#include "weft/mesh/row_deal.h"

namespace weft::context_blocks_test {
namespace {

using Sees = AttentionBlock::Sees;

constexpr AttentionMask kCausal{.is_causal = true};

bool is_seen(const AttentionBlock& block, int64_t query, int64_t key) {
  if (block.sees == Sees::kAll) return true;
  const int64_t last = query + block.offset;
  return key <= last && (block.sees == Sees::kCausal || key > last - block.window);
}

/// How often each row sees each, by blocks between all pairs of owners.
std::vector<std::vector<int>> times_seen(const RowDeal& deal, const PackedSegments& segments, AttentionMask mask,
                                         bool batches) {
  const auto num_rows = static_cast<size_t>(deal.num_rows());
  std::vector<std::vector<int>> seen(num_rows, std::vector<int>(num_rows));
  for (int64_t q = 0; q < deal.num_ranks(); ++q) {
    const auto queries = segment_parts(deal.ranges(q), segments);
    const std::vector<int64_t> query_rows = deal.rows(q);
    std::vector<bool> has_begun(query_rows.size());
    for (int64_t i = 0; i < deal.num_ranks(); ++i) {
      const int64_t k = (q + i) % deal.num_ranks();
      const auto keys = segment_parts(deal.ranges(k), segments);
      std::vector<AttentionBlock> blocks =
          q == k ? own_blocks(queries, mask, batches) : blocks_between(queries, keys, mask);
      std::vector<int64_t> key_rows = deal.rows(k);
      if (q != k) {
        // As they would arrive.
        std::vector<int64_t> packed;
        const std::vector<Range> used = used_keys(blocks);
        for (const Range& range : used) {
          packed.insert(packed.end(), key_rows.begin() + range.begin, key_rows.begin() + range.end);
        }
        blocks = with_packed_keys(std::move(blocks), used);
        key_rows = packed;
      }
      for (const AttentionBlock& block : blocks) {
        for (int64_t n = 0; n < block.count; ++n) {
          for (int64_t a = 0; a < block.queries.size(); ++a) {
            const auto row = static_cast<size_t>(block.queries.begin + n * block.queries.size() + a);
            EXPECT_EQ(block.has_own_keys, !has_begun[row]) << "the block with its own key comes first, once";
            has_begun[row] = true;
            int num_seen = 0;
            for (int64_t b = 0; b < block.keys.size(); ++b) {
              if (!is_seen(block, a, b)) continue;
              const auto key = static_cast<size_t>(block.keys.begin + n * block.keys.size() + b);
              ++seen[static_cast<size_t>(query_rows[row])][static_cast<size_t>(key_rows.at(key))];
              ++num_seen;
            }
            EXPECT_GT(num_seen, 0) << "kernels give no log-sum of nothing";
          }
        }
      }
    }
  }
  return seen;
}

TEST(ContextBlocks, EveryPairThatIsSeenIsInOneBlock) {
  std::mt19937_64 random(5);
  for (int round = 0; round < draws(150); ++round) {
    const int64_t num_ranks = 1 + static_cast<int64_t>(random() % 5);
    std::vector<int64_t> lengths(1 + random() % 5);
    for (int64_t& length : lengths) length = static_cast<int64_t>(random() % (round % 3 == 0 ? 4 : 16));
    const PackedSegments segments(lengths);
    std::vector<std::vector<Range>> ranges(static_cast<size_t>(num_ranks));
    for (int64_t row = 0; row < segments.num_rows(); ++row) ranges[random() % ranges.size()].push_back({row, row + 1});
    const RowDeal deal = round % 2 == 0 ? RowDeal(ranges) : RowDeal::zigzag(lengths, num_ranks);
    AttentionMask mask;
    if (random() % 4 != 0) mask.is_causal = true;
    if (mask.is_causal && random() % 2 == 0) mask.window = 1 + static_cast<int64_t>(random() % 8);
    const auto seen = times_seen(deal, segments, mask, random() % 2 == 0);
    int64_t begin = 0;
    for (const int64_t length : lengths) {
      for (int64_t i = 0; i < segments.num_rows(); ++i) {
        for (int64_t j = begin; j < begin + length; ++j) {
          const bool is_same = i >= begin && i < begin + length;
          const bool expected = is_same && (!mask.is_causal || (j <= i && (mask.window == 0 || j > i - mask.window)));
          ASSERT_EQ(seen[static_cast<size_t>(i)][static_cast<size_t>(j)], expected ? 1 : 0)
              << "round " << round << ", row " << i << " and " << j;
        }
      }
      begin += length;
    }
  }
}

TEST(ContextBlocks, AZigzagsStepIsOneCallOfHalfAnEarlierOrOfHalfTheQueries) {
  const std::vector<int64_t> lengths = {24};
  const PackedSegments segments(lengths);
  const RowDeal deal = RowDeal::zigzag(lengths, 3);
  std::vector<std::vector<SegmentPart>> parts;
  for (int64_t rank = 0; rank < 3; ++rank) parts.push_back(segment_parts(deal.ranges(rank), segments));
  EXPECT_EQ(blocks_between(parts[2], parts[0], kCausal),
            (std::vector<AttentionBlock>{{.queries = {0, 8}, .keys = {0, 4}}}));
  EXPECT_EQ(blocks_between(parts[0], parts[2], kCausal),
            (std::vector<AttentionBlock>{{.queries = {4, 8}, .keys = {0, 8}}}));
  EXPECT_EQ(
      own_blocks(parts[1], kCausal, false),
      (std::vector<AttentionBlock>{{.queries = {0, 8}, .keys = {0, 8}, .sees = Sees::kCausal, .has_own_keys = true}}));
}

TEST(ContextBlocks, WholeSegmentsOfOneLengthAreOneBatch) {
  const PackedSegments segments({4, 4, 4, 3, 3, 4});
  const auto blocks = own_blocks(segment_parts({{0, 22}}, segments), {}, /*batches=*/true);
  ASSERT_EQ(blocks.size(), 3);
  EXPECT_EQ(blocks[0].count, 3);
  EXPECT_EQ(blocks[1].count, 2);
  EXPECT_EQ(blocks[2].count, 1);
}

}  // namespace
}  // namespace weft::context_blocks_test
