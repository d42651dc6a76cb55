#include "weft/meaning/row_numbers.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

TEST(RowNumbers, CountMacroBatchesThenRanksThenPackedSamples) {
  // Two ranks, two macro batches of two samples, the last one short.
  const BatchAssignment::Shares shares = {{{0, 1}, {4}}, {{2, 3}, {}}};
  const std::vector<MediaRowCounts> samples = {
      {.image = 2, .video = 1}, {.image = 1, .video = 2}, {}, {.image = 3}, {.video = 2, .audio = 9}};
  const RowNumbers numbers(ModuleKind::kVision, shares, samples);
  ASSERT_EQ(numbers.num_macro_batches(), 2);
  EXPECT_EQ(numbers.rows(0), (Range{0, 9}));
  EXPECT_EQ(numbers.rows(0, 0), (Range{0, 6}));
  EXPECT_EQ(numbers.rows(0, 1), (Range{6, 9}));
  EXPECT_EQ(numbers.rows(1, 0), (Range{9, 11}));
  EXPECT_EQ(numbers.rows(1, 1), (Range{11, 11}));
  EXPECT_EQ(numbers.macro_of(8), 0);
  EXPECT_EQ(numbers.macro_of(9), 1);
  // Images of samples 0 and 1 are rows 0 to 2, their videos rows 3 to 5.
  EXPECT_EQ(numbers.rows_of(std::vector<int64_t>{1, 4}), (std::vector<int64_t>{2, 4, 5, 9, 10}));
  EXPECT_EQ(numbers.rows_of(std::vector<int64_t>{2}), std::vector<int64_t>());
}

TEST(RowNumbers, OfClipsCountClips) {
  const RowNumbers numbers(ModuleKind::kAudio, {{{1, 0}}},
                           std::vector<MediaRowCounts>{{.image = 7, .audio = 2}, {.audio = 3}});
  EXPECT_EQ(numbers.rows(0), (Range{0, 5}));
  EXPECT_EQ(numbers.rows_of(std::vector<int64_t>{0}), (std::vector<int64_t>{3, 4}));
}

// A macro batch without a row is never the one of a row.
TEST(RowNumbers, SkipEmptyMacroBatches) {
  const RowNumbers numbers(ModuleKind::kVision, {{{0}, {1}, {2}}},
                           std::vector<MediaRowCounts>{{.image = 1}, {}, {.image = 1}});
  EXPECT_EQ(numbers.macro_of(0), 0);
  EXPECT_EQ(numbers.macro_of(1), 2);
  EXPECT_TRUE(numbers.rows(1).empty());
}

}  // namespace
}  // namespace weft
