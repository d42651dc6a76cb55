#include "weft/cost/local_moves.h"

#include <gtest/gtest.h>

#include "weft/mesh/transition.h"

namespace weft {
namespace {

/// What steps between two states of a tensor of 4 x 6 on two ranks move.
int64_t moved(AxisState from, AxisState to) {
  const AxisGrid grid = *AxisGrid::create({{"tp", 2}});
  const auto layout = [&](AxisState state) { return *Layout::create(grid, {4, 6}, {state}); };
  int64_t elements = 0;
  for (const Step& step : plan_transition(layout(from), layout(to)).forward) elements += moved_elements(step);
  return elements;
}

TEST(LocalMoves, PartsAreReadAndWrittenOnce) {
  const AxisState whole = AxisState::replicated(), rows = AxisState::shard(0), columns = AxisState::shard(1);
  EXPECT_EQ(moved(whole, rows), 2 * 12);
  EXPECT_EQ(moved(whole, columns), 2 * 12);
}

TEST(LocalMoves, OnlyInnerDimsArePacked) {
  const AxisState whole = AxisState::replicated(), rows = AxisState::shard(0), columns = AxisState::shard(1);
  EXPECT_EQ(moved(rows, whole), 0);
  EXPECT_EQ(moved(columns, whole), 2 * 24);
  EXPECT_EQ(moved(AxisState::partial(), rows), 0);
  EXPECT_EQ(moved(AxisState::partial(), columns), 2 * 24);
  EXPECT_EQ(moved(AxisState::partial(), whole), 0);
  // Columns are packed before they are sent; rows that come stand behind each other.
  EXPECT_EQ(moved(rows, columns), 2 * 12);
  EXPECT_EQ(moved(columns, rows), 2 * 12);
}

}  // namespace
}  // namespace weft
