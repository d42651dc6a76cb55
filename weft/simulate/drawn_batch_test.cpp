#include "weft/simulate/drawn_batch.h"

#include <set>

#include <gtest/gtest.h>

#include "tests/support/source_tree.h"
#include "weft/meaning/plan_schedule.h"
#include "weft/plan/plan_json.h"
#include "weft/simulate/drawn_samples.h"
#include "weft/simulate/plan_simulator.h"

namespace weft::drawn_batch_test {
namespace {

Plan shipped(const std::string& name) {
  return *read_plan_file(source_tree().string() + "/scenarios/plans/" + name + ".json");
}

/// What one microbatch takes in every stage.
std::vector<double> column(const PipelineCosts& times, int32_t num_stages, int32_t microbatch) {
  std::vector<double> all;
  for (int32_t stage = 0; stage < num_stages; ++stage) {
    for (const CostTable* table : {&times.forward_ms, &times.backward_input_ms, &times.backward_weight_ms,
                                   &times.p2p_ms, &times.p2p_busy_ms, &*times.gradient_p2p_ms})
      all.push_back(table->at(stage, microbatch));
  }
  return all;
}

// Microbatches that are like an earlier one are not priced again: each must take what it takes as the only one.
TEST(DrawnBatch, EveryMicrobatchTakesWhatItTakesByItself) {
  for (const char* name : {"qwen2-vl-7b_inline", "qwen2-vl-7b_colocated_before"}) {
    const Plan plan = shipped(name);
    PlanSimulator simulator = *PlanSimulator::create(plan);
    DrawnSamples samples(plan);
    const SampleWork work(plan, simulator.costs());
    const DrawnBatch batch(plan, simulator.costs(), work, samples.batch(0));
    const Schedule schedule = *playable_schedule(plan);
    const PlanCosts& mean = simulator.price(plan);
    const DrawnBatch::Turns turns = batch.slowest().front();
    PipelineCosts times = pipeline_costs(plan, schedule, mean);
    batch.apply(turns, schedule, mean, times);
    const auto num_stages = static_cast<int32_t>(mean.stages.size());
    std::set<std::vector<double>> distinct;
    for (size_t microbatch = 0; microbatch < turns.size(); ++microbatch) {
      PipelineCosts alone = pipeline_costs(plan, schedule, mean);
      batch.apply(DrawnBatch::Turns(turns.size(), turns[microbatch]), schedule, mean, alone);
      const std::vector<double> expected = column(alone, num_stages, 0);
      EXPECT_EQ(column(times, num_stages, static_cast<int32_t>(microbatch)), expected) << name << " " << microbatch;
      EXPECT_EQ(column(alone, num_stages, static_cast<int32_t>(turns.size()) - 1), expected) << name;
      distinct.insert(expected);
    }
    EXPECT_LT(distinct.size(), turns.size()) << "some are alike";
    EXPECT_GT(distinct.size(), plan.modules.front().is_in_pipeline() ? 1u : 0u) << "some differ";
  }
}

TEST(DrawnBatch, MacroBatchesTakeTheirOwnLoads) {
  const Plan plan = shipped("qwen2-vl-7b_colocated_before");
  PlanSimulator simulator = *PlanSimulator::create(plan);
  DrawnSamples samples(plan);
  const SampleWork work(plan, simulator.costs());
  const DrawnBatch batch(plan, simulator.costs(), work, samples.batch(0));
  const Schedule schedule = *playable_schedule(plan);
  const PlanCosts& mean = simulator.price(plan);
  PipelineCosts times = pipeline_costs(plan, schedule, mean);
  batch.apply(batch.slowest().front(), schedule, mean, times);
  const ModulePlan& encoder = plan.modules.front();
  const int32_t num_macros = schedule.encoders.front().num_macro_batches;
  ASSERT_GT(num_macros, 1);
  for (int32_t macro = 0; macro < num_macros; ++macro) {
    ModuleCosts costs = *mean.modules.front();
    simulator.costs().price_load(plan, encoder, batch.macro_load(encoder, macro), costs);
    std::vector<StageCost> stages;
    price_encoder(plan, mean.encoders.front().module, costs, stages);
    EXPECT_EQ(times.encoders.front().forward_ms.at(0, macro), stages.front().forward_ms()) << macro;
  }
}

}  // namespace
}  // namespace weft::drawn_batch_test
