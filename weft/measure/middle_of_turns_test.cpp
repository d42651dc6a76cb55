#include "weft/measure/middle_of_turns.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

BlockMeasurement turn_of(double slowness, double spread_percent = 1) {
  return {.shape = {.block = "layer", .tokens = 64, .sequence_tokens = 64},
          .forward_ms = 1 * slowness,
          .backward_input_ms = 2 * slowness,
          .backward_weight_ms = 3 * slowness,
          .attention_ms = 0.5 * slowness,
          .kept_bytes = 100,
          .forward_peak_bytes = 200,
          .backward_peak_bytes = 300,
          .sureness = {.runs = 7, .spread_percent = spread_percent}};
}

TEST(MiddleOfTurns, ATurnWhileTheMachineWasSlowDoesNotCount) {
  const BlockMeasurement middle = middle_of_turns({turn_of(1), turn_of(1.6), turn_of(1)});
  EXPECT_DOUBLE_EQ(middle.forward_ms, 1);
  EXPECT_DOUBLE_EQ(middle.backward_input_ms, 2);
  EXPECT_DOUBLE_EQ(middle.backward_weight_ms, 3);
  EXPECT_DOUBLE_EQ(middle.attention_ms, 0.5);
  EXPECT_EQ(middle.sureness.runs, 21);
  EXPECT_DOUBLE_EQ(middle.kept_bytes, 100);
  EXPECT_EQ(middle.shape, turn_of(1).shape);
}

TEST(MiddleOfTurns, IsNoSurerThanItsTurnsAgree) {
  EXPECT_DOUBLE_EQ(middle_of_turns({turn_of(1, 2), turn_of(1, 1), turn_of(1, 4)}).sureness.spread_percent, 2);
  // Each is sure of itself to 1 %, and two of three are 20 % away from the median.
  EXPECT_NEAR(middle_of_turns({turn_of(0.8), turn_of(1), turn_of(1.2)}).sureness.spread_percent, 20, 1e-9);
}

TEST(MiddleOfTurns, OfOneTurnIsThatTurn) {
  const BlockMeasurement middle = middle_of_turns({turn_of(1.3, 2.5)});
  EXPECT_DOUBLE_EQ(middle.backward_weight_ms, 3.9);
  EXPECT_DOUBLE_EQ(middle.sureness.spread_percent, 2.5);
  EXPECT_EQ(middle.sureness.runs, 7);
}

}  // namespace
}  // namespace weft
