#include "weft/cost/operator_times.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

OperatorMeasurement measured(const char* op, const char* parts, double forward_ms, int64_t busy_ranks = 1) {
  return {.part = {.op = op, .parts = parts, .inside = ""},
          .busy_ranks = busy_ranks,
          .forward_ms = forward_ms,
          .backward_input_ms = 2 * forward_ms,
          .backward_weight_ms = 3 * forward_ms};
}

double forward(const OperatorTimes& times, const char* op, const char* parts) {
  const auto found = times.find({.op = op, .parts = parts, .inside = ""});
  return found ? found->time.forward_ms : -1;
}

TEST(OperatorTimes, GivesWhatWasMeasured) {
  Profile profile;
  profile.operators = {measured("einsum(rows, weight)", "4x8, 8x8 -> 4x8", 2)};
  const OperatorTimes times(profile, 1);
  const auto found = times.find(profile.operators[0].part);
  ASSERT_TRUE(found);
  EXPECT_FALSE(found->is_scaled);
  EXPECT_EQ(found->time.forward_ms, 2);
  EXPECT_EQ(found->time.input_gradient_ms, 4);
  EXPECT_EQ(found->time.weight_gradient_ms, 6);
  EXPECT_EQ(forward(times, "norm(rows, weight)", "4x8, 8 -> 4x8"), -1);
  EXPECT_FALSE(times.find({.op = "einsum(rows, weight)", .parts = "4x8, 8x8 -> 4x8", .inside = "h 2"}));
}

TEST(OperatorTimes, ScalesTheNearestPartByItsWork) {
  Profile profile;
  profile.operators = {
      measured("einsum(rows, weight)", "4x8, 8x8 -> 4x8", 2), measured("einsum(rows, weight)", "64x8, 8x8 -> 64x8", 16),
      measured("attention(rows)", "2x16x24 -> 2x16x8", 5), measured("add(rows, rows)", "6, 6 -> 6", 3)};
  const OperatorTimes times(profile, 1);
  // Twice the rows are twice the multiplications; 48 rows are nearer to 64.
  EXPECT_NEAR(forward(times, "einsum(rows, weight)", "8x8, 8x8 -> 8x8"), 4, 1e-12);
  EXPECT_NEAR(forward(times, "einsum(rows, weight)", "48x8, 8x8 -> 48x8"), 12, 1e-12);
  // Rows see each other: of twice as many there are four times as many pairs.
  EXPECT_NEAR(forward(times, "attention(rows)", "2x32x24 -> 2x32x8"), 20, 1e-12);
  EXPECT_NEAR(forward(times, "add(rows, rows)", "18, 18 -> 18"), 9, 1e-12);
  EXPECT_TRUE(times.find({.op = "add(rows, rows)", .parts = "18, 18 -> 18", .inside = ""})->is_scaled);
}

TEST(OperatorTimes, TakesWhatWasMeasuredBesideAsManyBusyRanks) {
  Profile profile;
  profile.operators = {measured("sum(rows)", "6 -> 1", 1, 1), measured("sum(rows)", "6 -> 1", 2, 2),
                       measured("sum(rows)", "6 -> 1", 8, 8)};
  EXPECT_EQ(forward(OperatorTimes(profile, 1), "sum(rows)", "6 -> 1"), 1);
  EXPECT_EQ(forward(OperatorTimes(profile, 4), "sum(rows)", "6 -> 1"), 2);
  EXPECT_EQ(forward(OperatorTimes(profile, 16), "sum(rows)", "6 -> 1"), 8);
}

}  // namespace
}  // namespace weft
