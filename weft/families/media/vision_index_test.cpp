#include "weft/families/media/vision_index.h"

#include <algorithm>
#include <map>
#include <random>
#include <tuple>

#include <gtest/gtest.h>

namespace weft {
namespace {

TEST(VisionIndex, PatchesThatAreMergedStandTogether) {
  const std::vector<Grid> grids = {{1, 2, 4}, {2, 2, 2}};
  const auto positions = patch_positions(grids, 2);
  ASSERT_TRUE(positions) << positions.error().message();
  EXPECT_EQ(*positions,
            (std::vector<int64_t>{0, 0, 0, 1, 1, 0, 1, 1, 0, 2, 0, 3, 1, 2, 1, 3,  // two blocks beside each other
                                  0, 0, 0, 1, 1, 0, 1, 1,                          // a frame
                                  0, 0, 0, 1, 1, 0, 1, 1}));                       // and the next
}

TEST(VisionIndex, FramesAttendWithinThemselves) {
  const std::vector<Grid> grids = {{1, 4, 6}, {3, 2, 4}};
  const auto segments = frame_segments(grids, 2);
  ASSERT_TRUE(segments) << segments.error().message();
  EXPECT_EQ(*segments, (std::vector<int64_t>{24, 8, 8, 8}));
}

// A plane over the square is a plane over the frame: every patch has the value at its own place, whatever the sizes.
TEST(VisionIndex, LearnedPositionsAreMixedByDistance) {
  std::mt19937 random(1);
  const auto draw = [&](int64_t from, int64_t to) { return std::uniform_int_distribution(from, to)(random); };
  for (int trial = 0; trial < 100; ++trial) {
    const int64_t merge = draw(1, 3), side = draw(1, 9);
    const std::vector<Grid> grids = {{draw(1, 2), merge * draw(1, 6), merge * draw(1, 6)}, {1, merge, 2 * merge}};
    const auto mix = position_mix(grids, merge, side);
    const auto positions = patch_positions(grids, merge);
    ASSERT_TRUE(mix.ok() && positions.ok());
    size_t patch = 0;
    for (const Grid& grid : grids) {
      for (int64_t i = 0; i < num_patches(grid); ++i, ++patch) {
        double found = 0, total = 0;
        for (size_t corner = 4 * patch; corner < 4 * patch + 4; ++corner) {
          ASSERT_LT(mix->entries[corner], side * side);
          const auto row = static_cast<double>(mix->entries[corner] / side);
          const auto column = static_cast<double>(mix->entries[corner] % side);
          found += mix->weights[corner] * (3 * row - 2 * column + 1);
          total += mix->weights[corner];
        }
        const auto along = [&](int64_t place, int64_t size) {
          return size == 1 ? 0.0 : static_cast<double>(place * (side - 1)) / static_cast<double>(size - 1);
        };
        const double row = along((*positions)[2 * patch], grid.h), column = along((*positions)[2 * patch + 1], grid.w);
        EXPECT_NEAR(found, 3 * row - 2 * column + 1, 1e-12);
        EXPECT_NEAR(total, 1, 1e-12);
      }
    }
  }
}

TEST(VisionIndex, WindowsAtTheEdgesAreSmallerAndNoneIsEmpty) {
  // 3 x 4 units in windows of 2 x 2: the right one of each row is full, the lower row is half as high.
  const std::vector<Grid> grids = {{1, 6, 8}};
  const auto windows = window_order(grids, 2, 56, 14);
  ASSERT_TRUE(windows) << windows.error().message();
  EXPECT_EQ(windows->order, (std::vector<int64_t>{0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 10, 11}));
  EXPECT_EQ(windows->inverse, (std::vector<int64_t>{0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 10, 11}));
  EXPECT_EQ(windows->segments, (std::vector<int64_t>{16, 16, 8, 8}));
}

TEST(VisionIndex, WindowsEqualASortOfUnitsByTheWindowTheyAreIn) {
  std::mt19937 random(1);
  const auto draw = [&](int64_t from, int64_t to) { return std::uniform_int_distribution(from, to)(random); };
  for (int trial = 0; trial < 200; ++trial) {
    const int64_t merge = draw(1, 3);
    const int64_t window = draw(1, 4);
    std::vector<Grid> grids;
    for (int64_t i = draw(1, 3); i > 0; --i) grids.push_back({draw(1, 3), merge * draw(1, 7), merge * draw(1, 7)});

    using Window = std::tuple<size_t, int64_t, int64_t, int64_t>;  // grid, frame, row, column
    std::vector<std::pair<Window, int64_t>> units;
    std::map<Window, int64_t> patches;
    for (size_t g = 0; g < grids.size(); ++g) {
      for (int64_t unit = 0; unit < num_merged_tokens(grids[g], merge); ++unit) {
        const int64_t columns = grids[g].w / merge;
        const int64_t rows = grids[g].h / merge;
        const Window in{g, unit / (rows * columns), unit / columns % rows / window, unit % columns / window};
        units.emplace_back(in, static_cast<int64_t>(units.size()));
        patches[in] += merge * merge;
      }
    }
    std::ranges::sort(units);

    const auto windows = window_order(grids, merge, window * merge * 14 + 13, 14);
    ASSERT_TRUE(windows) << windows.error().message();
    ASSERT_EQ(windows->order.size(), units.size());
    ASSERT_EQ(windows->segments.size(), patches.size());
    for (size_t i = 0; i < units.size(); ++i) {
      EXPECT_EQ(windows->order[i], units[i].second);
      EXPECT_EQ(windows->order[static_cast<size_t>(windows->inverse[i])], static_cast<int64_t>(i));
    }
    size_t i = 0;
    for (const auto& [in, count] : patches) EXPECT_EQ(windows->segments[i++], count);
  }
}

TEST(VisionIndex, GridsThatCannotBeAreNamed) {
  const std::vector<Grid> odd = {{1, 4, 4}, {1, 4, 5}};
  for (const auto& result : {patch_positions(odd, 2), frame_segments(odd, 2)}) {
    ASSERT_FALSE(result);
    EXPECT_PRED_FORMAT2(testing::IsSubstring, "grids[1]: the grid is 1 x 4 x 5", result.error().message());
  }
  EXPECT_FALSE(window_order(odd, 2, 112, 14));
}

TEST(VisionIndex, AWindowHoldsAtLeastOneUnit) {
  const std::vector<Grid> grids = {{1, 4, 4}};
  const auto windows = window_order(grids, 2, 27, 14);
  ASSERT_FALSE(windows);
  EXPECT_PRED_FORMAT2(testing::IsSubstring, "vision_config.window_size: a window of 27 pixels",
                      windows.error().message());
}

}  // namespace
}  // namespace weft
