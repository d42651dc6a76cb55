#include "weft/mesh/layout.h"

#include <numeric>

#include <gtest/gtest.h>

namespace weft::layout_test {
namespace {

using Sizes = std::vector<int64_t>;

const AxisState kP = AxisState::partial();
const AxisState kR = AxisState::replicated();
const AxisState kG = AxisState::replicated_partial_grad();

AxisState s(size_t dim) {
  return AxisState::shard(dim);
}

TEST(Layout, ABalancedSplitGivesTheFirstPartsOneMore) {
  EXPECT_EQ(Split(7, Sizes{3}).sizes(), (Sizes{3, 2, 2}));
  EXPECT_EQ(Split(2, Sizes{4}).sizes(), (Sizes{1, 1, 0, 0}));
  EXPECT_EQ(Split(0, Sizes{2}).sizes(), (Sizes{0, 0}));
  EXPECT_EQ(Split(5, Sizes{}).sizes(), (Sizes{5}));
}

TEST(Layout, NestedSplitsCutTheOutermostFirst) {
  // 6 = 3 + 3, and each 3 = 2 + 1; a joint split into four would be 2, 2, 1, 1.
  EXPECT_EQ(Split(6, Sizes{2, 2}).sizes(), (Sizes{2, 1, 2, 1}));
  EXPECT_EQ(Split(7, Sizes{2, 3}).sizes(), (Sizes{2, 1, 1, 1, 1, 1}));
}

TEST(Layout, PartsFollowEachOtherWithoutGaps) {
  for (int64_t length = 0; length < 30; ++length) {
    for (const Sizes& counts : {Sizes{}, Sizes{4}, Sizes{2, 3}, Sizes{3, 2, 2}}) {
      const Split split(length, counts);
      int64_t end = 0;
      for (int64_t part = 0; part < split.num_parts(); ++part) {
        EXPECT_EQ(split.part(part).begin, end);
        end = split.part(part).end;
      }
      EXPECT_EQ(end, length);
    }
  }
}

TEST(Layout, GivenSizesThatAreTheBalancedOnesAreTheSameSplit) {
  EXPECT_EQ(Split(Sizes{2, 1, 2, 1}, Sizes{2, 2}), Split(6, Sizes{2, 2}));
  EXPECT_NE(Split(Sizes{2, 2, 1, 1}, Sizes{2, 2}), Split(6, Sizes{2, 2}));
  EXPECT_TRUE(Split(Sizes{3, 2, 2}, Sizes{3}).is_balanced());
  EXPECT_EQ(Split(Sizes{0, 5, 2}, Sizes{3}).part(1), (Range{0, 5}));
}

TEST(Layout, NeighbouringRanksHoldNeighbouringRowsWhenTwoAxesShardADim) {
  const AxisGrid grid = *AxisGrid::create({{"tp", 2}, {"dp", 2}});
  const Layout layout = *Layout::create(grid, {8, 3}, {s(0), s(0)});
  EXPECT_EQ(layout.box(0), (Box{{0, 2}, {0, 3}}));
  EXPECT_EQ(layout.box(1), (Box{{2, 4}, {0, 3}}));
  EXPECT_EQ(layout.box(2), (Box{{4, 6}, {0, 3}}));
  EXPECT_EQ(layout.shard_axes(0), (AxisList{0, 1}));
}

TEST(Layout, LocalShapesFollowTheCoordinatesOfTheAxesThatShard) {
  const AxisGrid grid = *AxisGrid::create({{"tp", 2}, {"cp", 3}, {"dp", 2}});
  const Layout layout = *Layout::create(grid, {4, 7, 5}, {s(2), s(1), kP});
  for (int64_t position = 0; position < grid.num_positions(); ++position) {
    EXPECT_EQ(layout.local_shape(position),
              (Sizes{4, grid.coordinate(position, 1) == 0 ? 3 : 2, grid.coordinate(position, 0) == 0 ? 3 : 2}));
  }
  EXPECT_EQ(layout.num_local_elements(0), 36);
  EXPECT_EQ(layout.num_elements(), 140);
}

TEST(Layout, ADimMayBeSmallerThanItsGroupOrEmptyAndATensorMayHaveNoDims) {
  const AxisGrid grid = *AxisGrid::create({{"tp", 4}});
  EXPECT_EQ(Layout::create(grid, {2, 5}, {s(0)})->num_local_elements(3), 0);
  EXPECT_EQ(Layout::create(grid, {0, 5}, {s(1)})->num_local_elements(0), 0);
  EXPECT_EQ(Layout::create(grid, {}, {kP})->num_local_elements(2), 1);
}

TEST(Layout, RowsMayBeRagged) {
  const AxisGrid grid = *AxisGrid::create({{"tp", 2}, {"dp", 2}});
  const Layout layout = *Layout::create(grid, {9, 2}, {kR, s(0)}, {{.dim = 0, .sizes = {7, 2}}});
  EXPECT_EQ(layout.range(0, 1), (Range{0, 7}));
  EXPECT_EQ(layout.range(0, 2), (Range{7, 9}));
  EXPECT_EQ(layout.text(), "[9, 2] on tp 2 × dp 2: tp replicated, dp shard 0; dim 0 as 7 + 2");
}

TEST(Layout, TheGradientOfAPartialValueIsTheSameOnAllRanksAndTheOtherWayRound) {
  EXPECT_EQ(s(1).gradient(), s(1));
  EXPECT_EQ(kR.gradient(), kR);
  EXPECT_EQ(kP.gradient(), kG);
  EXPECT_EQ(kG.gradient(), kP);
  const AxisGrid grid = *AxisGrid::create({{"tp", 2}, {"dp", 2}});
  const Layout layout = *Layout::create(grid, {5}, {s(0), kP}, {{.dim = 0, .sizes = {1, 4}}});
  EXPECT_EQ(layout.gradient(), *Layout::create(grid, {5}, {s(0), kG}, {{.dim = 0, .sizes = {1, 4}}}));
  EXPECT_EQ(layout.gradient().gradient(), layout);
}

TEST(Layout, ItsTextNamesEveryAxis) {
  const AxisGrid grid = *AxisGrid::create({{"tp", 2}, {"cp", 3}});
  EXPECT_EQ(Layout::create(grid, {6, 4}, {s(1), kP})->text(), "[6, 4] on tp 2 × cp 3: tp shard 1, cp partial");
  EXPECT_EQ(Layout::create(grid, {6}, {kR, kG})->text(),
            "[6] on tp 2 × cp 3: tp replicated, cp replicated with partial gradient");
}

TEST(Layout, MistakesAreNamed) {
  const AxisGrid grid = *AxisGrid::create({{"tp", 2}});
  const auto problem = [&](Sizes shape, std::vector<AxisState> states, std::vector<PartSizes> sizes = {}) {
    const Result<Layout> layout = Layout::create(grid, std::move(shape), std::move(states), sizes);
    return layout ? "" : layout.error().message();
  };
  EXPECT_EQ(problem({4}, {s(1)}), "axis 'tp' shards dim 1, but the tensor has 1 dims");
  EXPECT_EQ(problem({4}, {}), "a layout has 0 states, but the mesh tp 2 has 1 axes");
  EXPECT_EQ(problem({-4}, {kR}), "shape [-4] has a negative size");
  EXPECT_EQ(problem({int64_t{1} << 40, 0, int64_t{1} << 40}, {kR}),
            "shape [1099511627776, 0, 1099511627776] has more than 9,007,199,254,740,992 elements");
  EXPECT_EQ(problem({4}, {s(0)}, {{0, {1, 2}}}), "the parts of dim 0 have 1 + 2 = 3 indices, but the dim has 4");
  EXPECT_EQ(problem({4}, {s(0)}, {{0, {4}}}), "1 sizes are given for dim 0, which is cut into 2 parts");
  EXPECT_EQ(problem({4}, {s(0)}, {{0, {5, -1}}}), "a part of dim 0 has size 5, 0 to 4 is possible");
  EXPECT_EQ(problem({4}, {s(0)}, {{1, {2, 2}}}), "sizes are given for dim 1 of 1");
  EXPECT_NE(problem(Sizes(9, 1), {kR}), "");
}

}  // namespace
}  // namespace weft::layout_test
