#include <gtest/gtest.h>

#include "weft/program/op.h"

namespace weft {
namespace {

TEST(TensorSplit, FollowsFromWhatAnOperatorReadsAndMakes) {
  using enum Features;
  EXPECT_EQ(split_between(kWidth, kWidth), TensorSplit::kWhole);
  for (const Features wide : {kHeads, kInner, kVocabulary}) {
    EXPECT_EQ(split_between(kWidth, wide), TensorSplit::kColumn);
    EXPECT_EQ(split_between(wide, kWidth), TensorSplit::kRow);
    EXPECT_EQ(split_between(wide, wide), TensorSplit::kInside);
  }
}

TEST(TensorSplit, ATableIsDividedByItsEntries) {
  const Op table{.name = "embedding", .shape = Lookup{.entries = 8, .width = 4}, .in = Features::kVocabulary};
  EXPECT_TRUE(is_divided_table(table));
  const Op positions{.name = "positions", .shape = Lookup{.entries = 8, .width = 4}};
  EXPECT_FALSE(is_divided_table(positions));
}

}  // namespace
}  // namespace weft
