#include "weft/simulate/message_order.h"

#include <gtest/gtest.h>

#include "weft/schedule/generators.h"
#include "weft/schedule/lowering.h"

namespace weft {
namespace {

size_t place_of(const Schedule& schedule, size_t row, const char* text) {
  const std::vector<Action>& actions = schedule.rows[row];
  for (size_t i = 0; i < actions.size(); ++i)
    if (to_text(actions[i]) == text) return i;
  ADD_FAILURE() << text << " is not in row " << row;
  return 0;
}

Schedule lowered() {
  return *lower_schedule(*generate_schedule(ScheduleName::k1f1b, {.pp = 2, .vpp = 1, .microbatches = 3}));
}

TEST(MessageOrder, AnAnswerTellsThatTheQuestionWasTaken) {
  const Schedule schedule = lowered();
  const MessageOrder order(schedule, [](const Action&) { return true; });
  // The gradient of microbatch 0 comes from who has taken its rows: what runs after 0B0 knows.
  EXPECT_EQ(order.taken_before(0, place_of(schedule, 0, "0SEND_F0")), place_of(schedule, 0, "0B0") + 1);
}

TEST(MessageOrder, WhatNobodyAnswersMayBeOnItsWayUntilTheEnd) {
  const Schedule schedule = lowered();
  const MessageOrder order(schedule, [](const Action&) { return true; });
  EXPECT_EQ(order.taken_before(1, place_of(schedule, 1, "1SEND_B2")), schedule.rows[1].size());
}

TEST(MessageOrder, AnEmptyMessageTellsNothing) {
  const Schedule schedule = lowered();
  const MessageOrder order(schedule, [](const Action& action) { return action.microbatch != 0; });
  const size_t sent = place_of(schedule, 0, "0SEND_F1");
  EXPECT_EQ(order.taken_before(0, sent), place_of(schedule, 0, "0B1") + 1);
}

}  // namespace
}  // namespace weft
