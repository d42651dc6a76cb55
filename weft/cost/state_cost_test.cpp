#include "weft/cost/state_cost.h"

#include <gtest/gtest.h>

#include "tests/support/cost/example_plan.h"
#include "weft/cost/cost_model.h"
#include "weft/meaning/check.h"
#include "weft/meaning/trainable.h"

namespace weft {
namespace {

constexpr int64_t kElements = 1'000'000;

GroupLink ranks_at(int64_t ranks, double bytes_per_ms = 1e6) {
  return {.num_ranks = ranks,
          .ranks_per_node = ranks,
          .ring_bytes_per_ms = bytes_per_ms,
          .within_bytes_per_ms = bytes_per_ms,
          .latency_ms = 0};
}

struct Setting {
  Plan plan;
  ModuleCosts costs;

  /// Weights of a module that is trained as a whole, or not at all.
  StateElements all_of(const LocalParameters& elements, int64_t num_weights) const {
    return elements_of({.parameters = elements, .gradients = elements, .num_weights = num_weights},
                       backward_of(plan, plan.modules.back().kind));
  }
  StateCost price(const LocalParameters& elements, const StateContext& context = {}) const {
    return price_state(plan, plan.modules.back(), costs, all_of(elements, 1), context);
  }
  ZeroTraffic traffic(const LocalParameters& elements, int64_t num_weights = 1) const {
    const ModulePlan& module = plan.modules.back();
    return zero_traffic(plan, module, costs, all_of(elements, num_weights));
  }
};

Setting with_ranks(int64_t ranks, int64_t zero, PrecisionPlan precision = {}) {
  Setting s{.plan = text_plan(gpt_model({}), ideal_cluster(8), {.dp = ranks, .zero = zero}, 512), .costs = {}};
  s.plan.precision = precision;
  s.plan.buckets_mb = 1e6;
  s.costs.gradient_link = s.costs.expert_gradient_link = ranks_at(ranks);
  return s;
}

TEST(StateCost, MixedPrecisionTakesEighteenBytesAParameterAndZeroDividesThem) {
  constexpr double n = 8;
  // bf16 weights; fp32 gradients; fp32 master weights and two moments.
  const std::vector<StateMemory> expected = {{2, 4, 12}, {2, 4, 12 / n}, {2, 4 / n, 12 / n}, {2 / n, 4 / n, 12 / n}};
  for (int64_t zero = 0; zero <= 3; ++zero) {
    const StateMemory memory = with_ranks(8, zero).price({.dense = kElements}).memory;
    const StateMemory& bytes = expected[static_cast<size_t>(zero)];
    EXPECT_DOUBLE_EQ(memory.weights, bytes.weights * kElements) << "zero " << zero;
    EXPECT_DOUBLE_EQ(memory.gradients, bytes.gradients * kElements) << "zero " << zero;
    EXPECT_DOUBLE_EQ(memory.optimizer, bytes.optimizer * kElements) << "zero " << zero;
  }
  EXPECT_DOUBLE_EQ(with_ranks(1, 0).price({.dense = kElements}).memory.total(), 18.0 * kElements);
}

TEST(StateCost, OtherPrecisionsTakeTheirOwnBytes) {
  const PrecisionPlan half_gradients{.reduce = Precision::kBf16};
  EXPECT_DOUBLE_EQ(with_ranks(1, 0, half_gradients).price({.dense = 1}).memory.total(), 16);
  const PrecisionPlan single{Precision::kFp32, Precision::kFp32, Precision::kFp32};
  EXPECT_DOUBLE_EQ(with_ranks(1, 0, single).price({.dense = 1}).memory.total(), 16) << "no master copy of its own";
  const PrecisionPlan twice{Precision::kFp64, Precision::kFp64, Precision::kFp64};
  EXPECT_DOUBLE_EQ(with_ranks(1, 0, twice).price({.dense = 1}).memory.total(), 32);
}

TEST(StateCost, OwnedWeightsAreAPartOfTheWholeOnesThatAreKept) {
  Setting s = with_ranks(4, 3);
  s.plan.modules.back().zero_keep_gathered = true;
  const StateCost cost = s.price({.dense = kElements});
  EXPECT_DOUBLE_EQ(cost.memory.weights, 2.0 * kElements);
  EXPECT_EQ(s.traffic({.dense = kElements}).gather_ms, 0);
  // Once a step they come together: three quarters of 2 MB at 1 MB/ms, and nothing to hide behind.
  EXPECT_DOUBLE_EQ(cost.update_ms, 1.5);
}

TEST(StateCost, ExpertsAreSharedAmongTheirOwnCopies) {
  Setting s = with_ranks(8, 1);
  s.costs.expert_gradient_link = ranks_at(2);
  const StateMemory memory = s.price({.dense = kElements, .expert = 3 * kElements}).memory;
  EXPECT_DOUBLE_EQ(memory.optimizer, 12.0 * kElements / 8 + 12.0 * 3 * kElements / 2);
}

TEST(StateCost, FrozenModulesHoldWeightsAndNothingElse) {
  Setting s = with_ranks(8, 0);
  s.plan.workload.frozen = {ModuleKind::kLlm};
  const StateCost cost = s.price({.dense = kElements});
  EXPECT_DOUBLE_EQ(cost.memory.total(), 2.0 * kElements);
  EXPECT_EQ(cost.reduce_ms + cost.update_ms + cost.flight_bytes + cost.passing_bytes, 0);
  s.plan.modules.back().zero = 3;
  EXPECT_EQ(s.traffic({.dense = kElements}).backward_gather_ms + s.traffic({.dense = kElements}).scatter_ms, 0);
}

TEST(StateCost, GradientsAreReducedOnceAStepOrInEveryMicrobatch) {
  // 4 MB of gradients over 4 ranks at 1 MB/ms: 3 ms a pass.
  EXPECT_DOUBLE_EQ(with_ranks(4, 0).price({.dense = kElements}).reduce_ms, 6) << "all-reduce";
  const StateCost one = with_ranks(4, 1).price({.dense = kElements});
  EXPECT_DOUBLE_EQ(one.reduce_ms, 3) << "reduce-scatter";
  EXPECT_DOUBLE_EQ(one.update_ms, 1.5) << "2 MB of new weights come back";
  const StateCost two = with_ranks(4, 2).price({.dense = kElements});
  EXPECT_EQ(two.reduce_ms, 0);
  EXPECT_DOUBLE_EQ(with_ranks(4, 2).traffic({.dense = kElements}).scatter_ms, 3);
  EXPECT_EQ(with_ranks(4, 2).traffic({.dense = kElements}).gather_ms, 0);
  const StateCost three = with_ranks(4, 3).price({.dense = kElements});
  const ZeroTraffic traffic = with_ranks(4, 3).traffic({.dense = kElements});
  EXPECT_DOUBLE_EQ(traffic.gather_ms, 1.5);
  EXPECT_DOUBLE_EQ(traffic.backward_gather_ms, 1.5);
  EXPECT_DOUBLE_EQ(traffic.scatter_ms, 3);
  EXPECT_NEAR(three.update_ms, 0, 1e-9) << "nothing comes back: the next forward gathers";
}

TEST(StateCost, EveryBucketOfABlockTravelsByItself) {
  Setting s = with_ranks(4, 3);
  s.costs.gradient_link.latency_ms = s.costs.gradient_link.within_latency_ms = 0.1;
  // Three hops; 4 MB of gradients are four buckets of 1 MB, but no more than there are weights.
  EXPECT_DOUBLE_EQ(s.traffic({.dense = kElements}, 9).gather_ms, 1.5 + 0.3);
  s.plan.buckets_mb = 1;
  EXPECT_DOUBLE_EQ(s.traffic({.dense = kElements}, 9).gather_ms, 1.5 + 4 * 0.3);
  EXPECT_DOUBLE_EQ(s.traffic({.dense = kElements}, 2).gather_ms, 1.5 + 2 * 0.3);
  EXPECT_DOUBLE_EQ(s.traffic({.dense = kElements}, 9).scatter_ms, 3 + 4 * 0.3);
}

TEST(StateCost, OverlapHidesReductionBehindTheBackwardButNotTheLastBucket) {
  Setting s = with_ranks(4, 0);
  s.plan.cluster.efficiency.overlap = 0.5;
  s.plan.buckets_mb = 1;  // a quarter of the 4 MB
  EXPECT_DOUBLE_EQ(s.price({.dense = kElements}, {.backward_ms = 4}).reduce_ms, 6 - 2);
  EXPECT_DOUBLE_EQ(s.price({.dense = kElements}, {.backward_ms = 100}).reduce_ms, 1.5);
  s.plan.overlap_dp = false;
  EXPECT_DOUBLE_EQ(s.price({.dense = kElements}, {.backward_ms = 100}).reduce_ms, 6);
}

TEST(StateCost, WhatHidesBehindOnePassSharesIt) {
  // Dense weights and experts: 3 + 3 ms of reduction behind 4 ms.
  Setting s = with_ranks(4, 1);
  s.plan.cluster.efficiency.overlap = 1;
  s.plan.buckets_mb = 1e-6;
  const StateCost cost = s.price({.dense = kElements, .expert = kElements}, {.forward_ms = 2, .backward_ms = 4});
  EXPECT_DOUBLE_EQ(cost.reduce_ms, 2);
  EXPECT_NEAR(cost.update_ms, 2 * 1.5 - 2, 1e-9);
}

TEST(StateCost, BuffersHoldBucketsAndTwoGatheredBlocks) {
  Setting s = with_ranks(8, 0);
  s.plan.buckets_mb = 1;
  EXPECT_DOUBLE_EQ(s.price({.dense = kElements}).flight_bytes, 2e6);
  s.plan.buckets_mb = 64;
  EXPECT_DOUBLE_EQ(s.price({.dense = kElements}).flight_bytes, 4e6) << "no more than there are gradients";
  s.plan.modules.back().zero = 3;
  // All gradients are one bucket, which is filled while that of another microbatch is scattered.
  const StateCost divided = s.price({.dense = kElements}, {.largest_block_elements = 1e5});
  EXPECT_DOUBLE_EQ(divided.flight_bytes, 4e6 * (1 + 1 / 8.0));
  EXPECT_DOUBLE_EQ(divided.passing_bytes, 4e6 + 2 * 1e5 * 2) << "while an action runs";
  s = with_ranks(1, 0);
  EXPECT_EQ(s.price({.dense = kElements}).flight_bytes + s.price({.dense = kElements}).passing_bytes, 0);
}

TEST(StateCost, BothEndsOfAPipelineAddUpATiedTablesGradients) {
  Cluster cluster = ideal_cluster(1, 2);
  cluster.within_node.bandwidth_gb_per_s = 10;
  GptShape shape{.width = 256, .heads = 4, .layers = 4, .positions = 128, .vocabulary = 5000};
  const auto reduce_ms = [&](bool is_tied) {
    shape.is_tied = is_tied;
    const Plan plan = text_plan(gpt_model(shape), cluster, {.pp = 2}, 128, {.microbatches = 2});
    PlanCosts costs;
    CostModel model = *CostModel::create(plan);
    model.price(plan, costs);
    return std::pair{costs.stages[0].reduce_ms, costs.stages[1].reduce_ms};
  };
  const double table_ms = 5000 * 256 * 4 / 10e6;  // two passes of half the bytes
  EXPECT_NEAR(reduce_ms(true).first, table_ms, 1e-9);
  EXPECT_NEAR(reduce_ms(true).second, table_ms, 1e-9);
  EXPECT_EQ(reduce_ms(false).first + reduce_ms(false).second, 0);
}

TEST(StateCost, AnOffloadedOptimizerLeavesTheDeviceAndTravelsBothWays) {
  Setting s = with_ranks(1, 0);
  s.plan.cluster.host = {.bandwidth_gb_per_s = 1};
  s.plan.offload.optimizer = 0.25;
  const StateCost cost = s.price({.dense = kElements});
  EXPECT_DOUBLE_EQ(cost.memory.optimizer, 0.75 * 12 * kElements);
  EXPECT_DOUBLE_EQ(cost.update_ms, 2 * 0.25 * 12 * kElements / 1e6);
}

TEST(StateCost, AnUpdateMovesGradientStatesAndWeights) {
  // The gradient twice, master and moments read and written, the weight written.
  EXPECT_DOUBLE_EQ(update_traffic_bytes({}), 2 * 4 + 2 * 12 + 2);
  Setting s = with_ranks(1, 0);
  s.plan.cluster.device.memory_bandwidth_gb_per_s = 2;
  s.plan.cluster.efficiency.update = 0.5;
  EXPECT_DOUBLE_EQ(s.price({.dense = kElements}).update_ms, 34.0 * kElements / 1e6);
}

TEST(StateCost, ATiedTableIsHeldTwiceWhenFirstAndLastStageDiffer) {
  const GptShape shape{.width = 256, .heads = 4, .layers = 4, .positions = 128, .vocabulary = 5000};
  const auto held_elements = [&](bool is_tied, int64_t pp, int64_t vpp, const std::string& schedule) {
    GptShape own = shape;
    own.is_tied = is_tied;
    const Plan plan = text_plan(gpt_model(own), ideal_cluster(1, pp), {.pp = pp, .vpp = vpp}, 128,
                                {.name = schedule, .mbs = 1, .microbatches = 4});
    EXPECT_TRUE(check_plan(plan).empty());
    PlanCosts costs;
    CostModel model = *CostModel::create(plan);
    model.price(plan, costs);
    double weights = 0;
    for (const StageCost& stage : costs.stages) weights += stage.state.weights;
    return weights / 2;
  };
  const double table = 5000 * 256;
  const auto tied_model = static_cast<double>(num_parameters(
      gpt_model({.width = 256, .heads = 4, .layers = 4, .positions = 128, .vocabulary = 5000, .is_tied = true})));
  EXPECT_EQ(held_elements(true, 1, 1, "1f1b"), tied_model);
  EXPECT_EQ(held_elements(true, 2, 1, "1f1b"), tied_model + table);
  EXPECT_EQ(held_elements(false, 2, 1, "1f1b"), tied_model + table) << "as much as an own head";
  EXPECT_EQ(held_elements(true, 2, 2, "zb_v"), tied_model + table)
      << "V placement has both ends on rank 0, each its own";
}

}  // namespace
}  // namespace weft
