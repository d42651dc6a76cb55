#include "weft/search/fill_orders.h"

#include <functional>

#include <gtest/gtest.h>

namespace weft::fill_orders_test {
namespace {

/// An encoder of four macro batches on both ranks of a pipeline with four microbatches.
FillProblem problem() {
  EncoderPlacement encoder{.form = EncoderForm::kFill};
  encoder.rows = {.name = "vision",
                  .num_macro_batches = 4,
                  .live_macro_batches = 4,
                  .groups = {{0}, {1}},
                  .first_macro = {0, 1, 2, 3},
                  .end_macro = {1, 2, 3, 4}};
  encoder.forward_ms = {1, 1};
  encoder.backward_ms = {2, 2};
  return {.schedule = ScheduleName::k1f1b,
          .shape = {.pp = 2, .vpp = 1, .microbatches = 4},
          .durations = {.forward_ms = {3, 3}, .backward_input_ms = {3, 3}, .backward_weight_ms = {3, 3}},
          .encoders = {encoder}};
}

Schedule placed(const FillProblem& given) {
  return *place_encoders(*generate_schedule(given.schedule, given.shape), given.encoders, given.durations);
}

TEST(FillOrders, TheSameProblemHasOneOrder) {
  FillOrders orders;
  const Schedule* first = orders.order_of(problem());
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(first->rows, placed(problem()).rows);
  EXPECT_EQ(orders.order_of(problem()), first);
}

TEST(FillOrders, WhateverAnOrderIsMadeFromTellsItApart) {
  const std::vector<std::function<void(FillProblem&)>> changes = {
      [](FillProblem& p) { p.schedule = ScheduleName::kZbH1; },
      [](FillProblem& p) { p.durations.forward_ms[1] = 4; },
      [](FillProblem& p) { p.durations.backward_input_ms[0] = 4; },
      [](FillProblem& p) { p.durations.backward_weight_ms[1] = 4; },
      [](FillProblem& p) { p.encoders[0].form = EncoderForm::kBefore; },
      [](FillProblem& p) { p.encoders[0].forward_ms[1] = 4; },
      [](FillProblem& p) { p.encoders[0].backward_ms[0] = 4; },
      [](FillProblem& p) { p.encoders[0].rows.is_trained = false; },
      [](FillProblem& p) { p.encoders[0].rows.recompute_from_inputs = true; },
      [](FillProblem& p) { p.encoders[0].rows.live_macro_batches = 3; },
      [](FillProblem& p) {
        p.encoders[0].rows.end_macro = {2, 2, 3, 4};
      },
      // As many groups, on other ranks.
      [](FillProblem& p) {
        p.encoders[0].rows.groups = {{1}, {0}};
      },
  };
  FillOrders orders;
  const Schedule* plain = orders.order_of(problem());
  for (size_t i = 0; i < changes.size(); ++i) {
    FillProblem changed = problem();
    changes[i](changed);
    const Schedule* order = orders.order_of(changed);
    ASSERT_NE(order, nullptr) << i;
    EXPECT_NE(order, plain) << i;
    EXPECT_EQ(order->rows, placed(changed).rows) << i;
  }
}

TEST(FillOrders, WhereThereIsNoneThereIsNothing) {
  FillProblem impossible = problem();
  impossible.encoders[0].rows.groups = {{0}, {7}};
  FillOrders orders;
  EXPECT_EQ(orders.order_of(impossible), nullptr);
  EXPECT_EQ(orders.order_of(impossible), nullptr);
}

}  // namespace
}  // namespace weft::fill_orders_test
