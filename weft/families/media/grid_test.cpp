#include "weft/families/media/grid.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

std::string error_of(const std::vector<Grid>& grids) {
  const auto patches = check_grids(grids, 2, "image_grids");
  return patches ? "none" : patches.error().message();
}

TEST(Grid, CountsPatchesAndTokens) {
  EXPECT_EQ(num_patches({3, 4, 6}), 72);
  EXPECT_EQ(num_merged_tokens({3, 4, 6}, 2), 18);
  EXPECT_EQ(*check_grids(std::vector<Grid>{{3, 4, 6}, {1, 2, 2}}, 2, "image_grids"), 76);
}

TEST(Grid, EverySideIsPositive) {
  for (const Grid& grid : {Grid{0, 2, 2}, Grid{1, 0, 2}, Grid{1, 2, 0}, Grid{-1, 2, 2}, Grid{1, -2, -2}}) {
    EXPECT_PRED_FORMAT2(testing::IsSubstring,
                        "image_grids[1]: the grid is " + to_string(grid) + "; frames, rows and columns are at least 1",
                        error_of({{1, 2, 2}, grid}));
  }
}

TEST(Grid, RowsAndColumnsAreMultiplesOfTheMergeSize) {
  EXPECT_PRED_FORMAT2(testing::IsSubstring, "image_grids[0]: the grid is 1 x 3 x 2", error_of({{1, 3, 2}}));
  EXPECT_PRED_FORMAT2(testing::IsSubstring, "multiples of the merge size 2", error_of({{1, 2, 3}}));
  EXPECT_EQ(error_of({{3, 2, 2}}), "none");
}

TEST(Grid, ThereAreNoMorePatchesThanCanBeCounted) {
  EXPECT_PRED_FORMAT2(testing::IsSubstring, "at most 2147483647 patches", error_of({{int64_t{1} << 62, 2, 2}}));
  EXPECT_PRED_FORMAT2(testing::IsSubstring, "at most 2147483647 patches",
                      error_of({{1, int64_t{1} << 32, int64_t{1} << 32}}));
  EXPECT_PRED_FORMAT2(testing::IsSubstring,
                      "image_grids[1]: with the grid 1 x 32768 x 32768 there are 2147483648 patches",
                      error_of({{1, 1 << 15, 1 << 15}, {1, 1 << 15, 1 << 15}}));
}

}  // namespace
}  // namespace weft
