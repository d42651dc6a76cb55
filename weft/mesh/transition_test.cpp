#include "weft/mesh/transition.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "tests/support/draws.h"
#include "tests/support/mesh/all_layouts.h"

namespace weft::transition_test {
namespace {

using States = std::vector<AxisState>;

const AxisState kP = AxisState::partial();
const AxisState kR = AxisState::replicated();
const AxisState kG = AxisState::replicated_partial_grad();

AxisState s(size_t dim) {
  return AxisState::shard(dim);
}

Transition plan(const AxisGrid& grid, std::vector<int64_t> shape, States from, States to) {
  return plan_transition(*Layout::create(grid, shape, std::move(from)), *Layout::create(grid, shape, std::move(to)));
}

/// "forward | adjoint" on one axis of four ranks.
std::string on_one_axis(AxisState from, AxisState to) {
  const Transition transition = plan(grid_of({4}), {8, 4}, {from}, {to});
  return text(transition.forward) + " | " + text(transition.adjoint);
}

TEST(Transition, OnOneAxisEveryPairIsOneStepEachWay) {
  EXPECT_EQ(on_one_axis(s(0), s(0)), "nothing | nothing");
  EXPECT_EQ(on_one_axis(s(0), s(1)), "all-to-all from dim 0 to 1 over a | all-to-all from dim 1 to 0 over a");
  EXPECT_EQ(on_one_axis(s(0), kP), "zero-pad of dim 0 over a | slice of dim 0 over a");
  EXPECT_EQ(on_one_axis(s(0), kR), "all-gather of dim 0 over a | slice of dim 0 over a");
  EXPECT_EQ(on_one_axis(s(0), kG), "all-gather of dim 0 over a | reduce-scatter of dim 0 over a");

  EXPECT_EQ(on_one_axis(kP, s(0)), "reduce-scatter of dim 0 over a | all-gather of dim 0 over a");
  EXPECT_EQ(on_one_axis(kP, kP), "nothing | nothing");
  EXPECT_EQ(on_one_axis(kP, kR), "all-reduce over a | identity over a");
  EXPECT_EQ(on_one_axis(kP, kG), "all-reduce over a | all-reduce over a");

  EXPECT_EQ(on_one_axis(kR, s(0)), "slice of dim 0 over a | all-gather of dim 0 over a");
  EXPECT_EQ(on_one_axis(kR, kP), "zero-pad over a | identity over a");
  EXPECT_EQ(on_one_axis(kR, kR), "nothing | nothing");
  EXPECT_EQ(on_one_axis(kR, kG), "identity over a | all-reduce over a");

  EXPECT_EQ(on_one_axis(kG, s(0)), "slice of dim 0 over a | zero-pad of dim 0 over a");
  EXPECT_EQ(on_one_axis(kG, kP), "zero-pad over a | zero-pad over a");
  EXPECT_EQ(on_one_axis(kG, kR), "identity over a | zero-pad over a");
  EXPECT_EQ(on_one_axis(kG, kG), "nothing | nothing");
}

TEST(Transition, RingFiguresWithEqualParts) {
  const AxisGrid grid = grid_of({4});
  const auto traffic = [&](AxisState from, AxisState to) {
    const Transition transition = plan(grid, {8, 4}, {from}, {to});
    const Traffic first = traffic_of(transition.forward, 0);
    for (int64_t position = 1; position < 4; ++position) EXPECT_EQ(traffic_of(transition.forward, position), first);
    EXPECT_EQ(busiest_received(transition.forward), first.received);
    return first;
  };
  // Of 32 elements.
  EXPECT_EQ(traffic(s(0), kR), (Traffic{24, 24}));
  EXPECT_EQ(traffic(kP, s(1)), (Traffic{24, 24}));
  EXPECT_EQ(traffic(kP, kR), (Traffic{48, 48}));
  EXPECT_EQ(traffic(s(0), s(1)), (Traffic{6, 6}));
  EXPECT_EQ(traffic(kR, s(0)), (Traffic{0, 0}));
  EXPECT_EQ((Traffic{6, 7}.in_bytes(2)), (Traffic{12, 14}));
}

TEST(Transition, UnevenPartsAreCountedRankByRank) {
  // Parts of 3, 2, 2 and 0 rows of 10 elements.
  const AxisGrid grid = grid_of({4});
  const Layout shards = *Layout::create(grid, {7, 10}, {s(0)}, {{0, {3, 2, 2, 0}}});
  const Layout whole = *Layout::create(grid, {7, 10}, {kG});
  const Transition transition = plan_transition(shards, whole);
  ASSERT_EQ(text(transition.forward), "all-gather of dim 0 over a");
  const std::vector<Traffic> gather{{50, 40}, {50, 50}, {70, 50}, {40, 70}};
  for (int64_t position = 0; position < 4; ++position) {
    const Traffic expected = gather[static_cast<size_t>(position)];
    EXPECT_EQ(traffic_of(transition.forward[0], position), expected) << position;
  }
  EXPECT_EQ(transition.forward[0].busiest_received, 70);

  ASSERT_EQ(text(transition.adjoint), "reduce-scatter of dim 0 over a");
  const std::vector<Traffic> scatter{{40, 70}, {50, 40}, {50, 50}, {70, 50}};
  for (int64_t position = 0; position < 4; ++position)
    EXPECT_EQ(traffic_of(transition.adjoint[0], position), scatter[static_cast<size_t>(position)]) << position;
  EXPECT_EQ(transition.adjoint[0].busiest_received, 70);
}

TEST(Transition, AnAllReduceOfFewerElementsThanRanksIsCountedInWholeElements) {
  const Transition transition = plan(grid_of({4}), {2}, {kP}, {kR});
  // Chunks of 1, 1, 0 and 0 elements: the last rank gets both, twice.
  EXPECT_EQ(traffic_of(transition.forward[0], 0), (Traffic{2, 3}));
  EXPECT_EQ(traffic_of(transition.forward[0], 3), (Traffic{3, 4}));
  EXPECT_EQ(transition.forward[0].busiest_received, 4);
}

TEST(Transition, TheBusiestRankOfEveryStepIsTheMostThatAnyRankReceives) {
  std::mt19937_64 random(7);
  for (int round = 0; round < draws(2000); ++round) {
    const AxisGrid grid = grid_of({1 + static_cast<int64_t>(random() % 3), 2, 1 + static_cast<int64_t>(random() % 4)});
    const std::vector<int64_t> shape{static_cast<int64_t>(random() % 9), static_cast<int64_t>(random() % 9)};
    const Layout from = random_layout(grid, shape, random);
    const Layout to = random_layout(grid, shape, random);
    for (const Step& step : plan_steps(from, to)) {
      int64_t busiest = 0;
      Traffic sum;
      for (int64_t position = 0; position < grid.num_positions(); ++position) {
        busiest = std::max(busiest, traffic_of(step, position).received);
        sum += traffic_of(step, position);
      }
      EXPECT_EQ(step.busiest_received, busiest) << step.text() << " from " << step.before.text();
      EXPECT_EQ(sum.sent, sum.received) << step.text() << " from " << step.before.text();
    }
  }
}

TEST(Transition, AxesAreJoinedWhereThatIsCheaperOrShorter) {
  const AxisGrid grid = grid_of({2, 4});
  // One all-reduce among 8 ranks: 2 · 7/8 of 32 elements, where one after the other would take 2 · (1/2 + 3/4).
  const Transition sum = plan(grid, {8, 4}, {kP, kP}, {kR, kR});
  EXPECT_EQ(text(sum.forward), "all-reduce over a+b");
  EXPECT_EQ(busiest_received(sum.forward), 56);
  EXPECT_EQ(text(plan(grid, {8, 4}, {s(0), s(0)}, {kR, kR}).forward), "all-gather of dim 0 over a+b");
  EXPECT_EQ(text(plan(grid, {8, 8}, {s(0), s(0)}, {s(1), s(1)}).forward), "all-to-all from dim 0 to 1 over a+b");
  EXPECT_EQ(text(plan(grid, {8, 8}, {kP, kP}, {s(1), s(1)}).forward), "reduce-scatter of dim 1 over a+b");
}

TEST(Transition, ScatteringComesBeforeGathering) {
  const Transition transition = plan(grid_of({2, 2}), {8, 4}, {kP, s(1)}, {s(0), kR});
  EXPECT_EQ(text(transition.forward), "reduce-scatter of dim 0 over a, all-gather of dim 1 over b");
  EXPECT_EQ(busiest_received(transition.forward), 16);
}

TEST(Transition, AnIdleAxisHelpsWithALargeSum) {
  // 2 · 7/8 of 128 elements by one all-reduce; half of that on halves of the tensor, and then half of the tensor.
  const Transition transition = plan(grid_of({8, 2}), {16, 8}, {kP, kR}, {kR, kR});
  EXPECT_EQ(busiest_received(transition.forward), 112 + 64);
}

TEST(Transition, AnotherDimMayServeOnTheWay) {
  // Rows are cut by b, then by a. To have them cut by a alone, gathering them all would bring a rank 16 and then 32
  // elements; moving the cuts to the columns and one of them back, and gathering the other, brings less.
  const Transition transition = plan(grid_of({2, 2}), {8, 8}, {s(0), s(0)}, {s(0), kR});
  EXPECT_EQ(text(transition.forward),
            "all-to-all from dim 0 to 1 over a+b, all-to-all from dim 1 to 0 over a, all-gather of dim 1 over b");
  EXPECT_EQ(busiest_received(transition.forward), 12 + 8 + 16);
}

TEST(Transition, AxesOfSizeOneNeedNoCollective) {
  const AxisGrid grid = grid_of({1, 2});
  EXPECT_EQ(text(plan(grid, {4, 2}, {s(0), s(1)}, {kR, s(1)}).forward), "identity over a");
  EXPECT_EQ(text(plan(grid, {4, 2}, {kP, kR}, {s(1), kG}).forward), "identity over a+b");
  EXPECT_EQ(text(plan(grid, {4, 2}, {kP, kP}, {kP, s(0)}).forward), "reduce-scatter of dim 0 over b");
  const Transition transition = plan(grid, {4, 2}, {s(0), s(0)}, {s(0), kR});
  EXPECT_EQ(text(transition.forward), "all-gather of dim 0 over b");
  EXPECT_EQ(transition.forward[0].after.state(0), s(0));
}

TEST(Transition, RaggedRowsAreEvenedOutByAnAllToAll) {
  const AxisGrid grid = grid_of({4});
  const Layout ragged = *Layout::create(grid, {8, 2}, {s(0)}, {{0, {8, 0, 0, 0}}});
  const Layout even = *Layout::create(grid, {8, 2}, {s(0)});
  const Transition transition = plan_transition(ragged, even);
  EXPECT_EQ(text(transition.forward), "all-to-all from dim 0 to 0 over a");
  EXPECT_EQ(busiest_received(transition.forward), 4);
  EXPECT_EQ(busiest_received(transition.adjoint), 12);
}

TEST(Transition, RaggedRowsWithinAGroupStayWithinIt) {
  // b cuts rows 3 + 5 in both; within each part a's sizes change.
  const AxisGrid grid = grid_of({2, 2});
  const Layout from = *Layout::create(grid, {8}, {s(0), s(0)}, {{0, {3, 0, 4, 1}}});
  const Layout to = *Layout::create(grid, {8}, {s(0), s(0)}, {{0, {1, 2, 1, 4}}});
  EXPECT_EQ(text(plan_steps(from, to)), "all-to-all from dim 0 to 0 over a");
}

TEST(Transition, StepsLeadFromTheFirstLayoutToTheLastWithoutAGap) {
  std::mt19937_64 random(11);
  for (int round = 0; round < draws(500); ++round) {
    const AxisGrid grid = grid_of({2, 1, 3});
    const Layout from = random_layout(grid, {5, 4}, random);
    const Layout to = random_layout(grid, {5, 4}, random);
    const std::vector<Step> steps = plan_steps(from, to);
    Layout at = from;
    for (const Step& step : steps) {
      EXPECT_EQ(step.before, at);
      at = step.after;
      for (size_t axis = 0; axis < 3; ++axis) {
        const bool is_listed = std::find(step.axes.begin(), step.axes.end(), axis) != step.axes.end();
        EXPECT_TRUE(is_listed || step.before.state(axis) == step.after.state(axis)) << step.text();
      }
    }
    EXPECT_EQ(at, to);
  }
}

TEST(Transition, LayoutsOfDifferentShapesOrMeshesHaveNone) {
  const Layout layout = *Layout::create(grid_of({2}), {4}, {kR});
  EXPECT_THROW(plan_steps(layout, *Layout::create(grid_of({2}), {5}, {kR})), InternalError);
  EXPECT_THROW(plan_steps(layout, *Layout::create(grid_of({3}), {4}, {kR})), InternalError);
}

}  // namespace
}  // namespace weft::transition_test
