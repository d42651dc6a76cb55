#include "weft/search/plan_changes.h"

#include <gtest/gtest.h>

#include "tests/support/source_tree.h"
#include "weft/plan/plan_json.h"
#include "weft/simulate/plan_simulator.h"

namespace weft::plan_changes_test {
namespace {

Plan shipped(const std::string& name) {
  return *read_plan_file(source_tree() / "scenarios/plans" / (name + ".json"));
}

TEST(PlanChanges, NoListAndOneOfBlocksThatKeepEverythingAreTheSame) {
  Plan from = shipped("llama3-8b_gpipe_tp2_pp2_dp2");
  from.modules.back().recompute.clear();
  Plan to = from;
  to.modules.back().recompute.assign(2, {Recompute()});
  EXPECT_TRUE(changes_between(from, to)->empty());
  to.modules.back().zero = 0;
  const auto changes = changes_between(from, to);
  ASSERT_EQ(changes->size(), 1U);
  EXPECT_EQ(changes->front().words, "zero 1 -> 0");
}

TEST(PlanChanges, WhatTheySaveAddsUp) {
  Plan from = shipped("llama3-8b_gpipe_tp2_pp2_dp2");
  Plan to = from;
  to.schedule.name = "1f1b";
  to.modules.back().zero = 0;
  to.modules.back().layers = {{15}, {17}};
  to.modules.back().recompute.clear();
  const auto changes = changes_between(from, to);
  ASSERT_TRUE(changes) << changes.error().message();
  double saved_ms = 0;
  for (const PlanChange& change : *changes) {
    double parts_ms = 0;
    for (const PartDifference& part : change.parts) parts_ms += part.more_ms;
    EXPECT_NEAR(parts_ms, change.saved_ms, 1e-6) << change.words;
    saved_ms += change.saved_ms;
  }
  from.batches = to.batches, from.batch_seed = to.batch_seed;
  EXPECT_NEAR(saved_ms, simulate_plan(from, {})->step_time_ms - simulate_plan(to, {})->step_time_ms, 1e-6);
  EXPECT_GE(changes->size(), 2U);
}

}  // namespace
}  // namespace weft::plan_changes_test
