#include "weft/cost/sample_cost.h"

#include <cmath>
#include <numeric>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/support/source_tree.h"
#include "weft/meaning/macro_batch.h"
#include "weft/plan/plan_json.h"
#include "weft/spec/scenario.h"

namespace weft::sample_cost_test {
namespace {

Plan shipped(const std::string& name) {
  return *read_plan_file(source_tree().string() + "/scenarios/plans/" + name + ".json");
}

const std::vector<std::string> kPlans = {"llama3-8b_cp4_ulysses2",
                                         "llama3-8b_gpipe_tp2_pp2_dp2",
                                         "qwen2-vl-7b_colocated_before",
                                         "qwen2-vl-7b_inline",
                                         "qwen2-vl-7b_partial",
                                         "qwen2.5-omni-7b_colocated_dp8",
                                         "qwen2.5-vl-7b_colocated_fill",
                                         "qwen2.5-vl-7b_disjoint_stream",
                                         "qwen3-30b-a3b_zb_h1_ep8",
                                         "qwen3-8b_zb_v_pp4",
                                         "tiny-vl_one_rank"};

/// Without what bends times: memory-bound operators, and communication that hides behind compute.
Plan on_straight_cluster(Plan plan) {
  Cluster& cluster = plan.cluster;
  cluster.device.memory_bandwidth_gb_per_s = 1e200;
  cluster.efficiency.overlap = 0;
  cluster.efficiency.host_us_per_kernel = 0;
  return plan;
}

/// The oracle: what the cost model says of the module's stages for one load.
double time_of(const CostModel& model, const Plan& plan, size_t index, const Segments& load) {
  const ModulePlan& module = plan.modules[index];
  const ModuleCosts costs = model.module_costs(plan, module, load);
  std::vector<StageCost> stages;
  if (module.is_in_pipeline()) {
    std::vector<StagePart> parts;
    list_stage_parts(plan, parts);
    stages.resize(static_cast<size_t>(num_stages(plan)));
    for (const StagePart& part : parts) {
      if (part.module == static_cast<int32_t>(index))
        price_part(plan, part, costs, TiedTable{}, stages[static_cast<size_t>(part.stage)]);
    }
    if (module.is_encoder()) price_output(plan, module, costs, stages.front());
  } else {
    price_encoder(plan, static_cast<int32_t>(index), costs, stages);
  }
  double ms = 0;
  for (const StageCost& stage : stages) {
    ms += stage.forward.total_ms() + stage.backward_input.total_ms() + stage.backward_weight.total_ms() +
          stage.recompute.total_ms();
    if (module.recompute_from_inputs) ms += stage.forward.total_ms();
  }
  return ms;
}

int64_t at_once(const Plan& plan, const ModulePlan& module) {
  return samples_at_once(plan, module);
}

Segments joined(const std::vector<SampleLoad>& samples, ModuleKind kind) {
  Segments all;
  for (const SampleLoad& sample : samples) all.insert(all.end(), sample.of(kind).begin(), sample.of(kind).end());
  return all;
}

/// The plan with lengths of all sorts, and something to recompute.
Plan with_variety(Plan plan) {
  if (!plan.workload.tokens_include_media)
    plan.workload.tokens = Distribution::weighted({{200, 0.3}, {800, 0.4}, {3000, 0.3}});
  for (ModulePlan& module : plan.modules) {
    for (size_t rank = 0; rank < module.recompute.size(); ++rank) {
      for (size_t chunk = 0; chunk < module.recompute[rank].size(); ++chunk) {
        const int64_t count = module.layers[rank][chunk];
        module.recompute[rank][chunk] = RecomputeCounts{.full = count / 3, .selective = count / 4};
      }
    }
  }
  return plan;
}

TEST(SampleCost, AddsUpToTheCostModelsTimesWhereTheyAreStraight) {
  for (const std::string& name : kPlans) {
    for (const AttentionKernel kernel : {AttentionKernel::kFused, AttentionKernel::kUnfused}) {
      Plan plan = on_straight_cluster(with_variety(shipped(name)));
      plan.workload.attention = kernel;
      const CostModel model = *CostModel::create(plan);
      SampleDrawer drawer(plan.model, plan.workload, 7);
      for (size_t m = 0; m < plan.modules.size(); ++m) {
        const ModulePlan& module = plan.modules[m];
        SCOPED_TRACE(fmt::format("{} {} {}", name, name_of(module.kind), name_of(kernel)));
        const SampleCost cost = sample_cost(model, plan, module);
        for (int trial = 0; trial < 20; ++trial) {
          std::vector<SampleLoad> samples;
          double predicted = cost.fixed_ms();
          for (int64_t i = 0; i < at_once(plan, module); ++i) {
            samples.push_back(drawer.draw());
            predicted += cost(samples.back().of(module.kind));
          }
          const Segments load = joined(samples, module.kind);
          if (num_tokens(load) == 0) continue;
          const double wanted = time_of(model, plan, m, load);
          ASSERT_NEAR(predicted, wanted, 1e-9 * wanted);
        }
      }
    }
  }
}

TEST(SampleCost, FollowsTheCostModelsTimesAroundTheUsualLoad) {
  for (const std::string& name : kPlans) {
    const Plan plan = with_variety(shipped(name));
    const CostModel model = *CostModel::create(plan);
    for (size_t m = 0; m < plan.modules.size(); ++m) {
      const ModulePlan& module = plan.modules[m];
      SCOPED_TRACE(fmt::format("{} {}", name, name_of(module.kind)));
      const SampleCost cost = sample_cost(model, plan, module);
      Segments usual = model.average().of(module.kind);
      for (Segment& segment : usual) segment.count *= static_cast<double>(at_once(plan, module));
      const double before = time_of(model, plan, m, usual);
      const double costs = cost.fixed_ms() + cost(usual);
      ASSERT_NEAR(costs, before, 1e-9 * before);
      for (const double length : {64.0, 576.0, 4096.0}) {
        Segments more = usual;
        more.push_back({length, 1e-5 * num_tokens(usual) / length});
        const double added = time_of(model, plan, m, more) - before;
        ASSERT_NEAR(cost({more.back()}), added, 1e-12 * before) << length;
        ASSERT_GE(cost({{length, 1}}), 0);
      }
    }
  }
}

/// Samples of a step, dealt out by cost, must be those that really take longest.
TEST(SampleCost, IsNearTheCostModelForDrawnSamplesToo) {
  const Plan plan = shipped("qwen2.5-omni-7b_colocated_dp8");
  const CostModel model = *CostModel::create(plan);
  SampleDrawer drawer(plan.model, plan.workload, 8);
  for (size_t m = 0; m < plan.modules.size(); ++m) {
    const ModulePlan& module = plan.modules[m];
    const SampleCost cost = sample_cost(model, plan, module);
    double error = 0, all = 0;
    for (int trial = 0; trial < 200; ++trial) {
      std::vector<SampleLoad> samples;
      double predicted = cost.fixed_ms();
      for (int64_t i = 0; i < at_once(plan, module); ++i) {
        samples.push_back(drawer.draw());
        predicted += cost(samples.back().of(module.kind));
      }
      const double wanted = time_of(model, plan, m, joined(samples, module.kind));
      error += std::abs(predicted - wanted);
      all += wanted;
    }
    EXPECT_LT(error, 0.05 * all) << name_of(module.kind);
    RecordProperty(fmt::format("error_{}", name_of(module.kind)), fmt::format("{:.4f}", error / all));
  }
}

TEST(SampleCost, LongSequencesCostMoreThanTheirTokensAndNoMediaCostNothing) {
  const Plan plan = shipped("qwen2-vl-7b_colocated_before");
  const PlanSampleCosts costs(*CostModel::create(plan), plan);
  const SampleLoad one_long{.vision = {{2304, 1}}, .audio = {}, .llm = {{8192, 1}}};
  const SampleLoad many_short{.vision = {{256, 9}}, .audio = {}, .llm = {{1024, 8}}};
  EXPECT_GT(costs.llm_ms(one_long), 1.05 * costs.llm_ms(many_short));
  EXPECT_LT(costs.llm_ms(one_long), 2 * costs.llm_ms(many_short)) << "nor does all of it grow with the square";
  EXPECT_GT(costs.encoder_ms(ModuleKind::kVision, one_long), costs.encoder_ms(ModuleKind::kVision, many_short));
  EXPECT_EQ(costs.encoder_ms(ModuleKind::kVision, {.vision = {}, .audio = {}, .llm = {{100, 1}}}), 0);
  const Plan inline_plan = shipped("qwen2-vl-7b_inline");
  const PlanSampleCosts together(*CostModel::create(inline_plan), inline_plan);
  EXPECT_GT(together.llm_ms({.vision = {{1024, 2}}, .audio = {}, .llm = {{1024, 1}}}),
            together.llm_ms({.vision = {}, .audio = {}, .llm = {{1024, 1}}}))
      << "an inline encoder is part of the pipeline";
  const Plan tiny = shipped("tiny-vl_one_rank");
  const PlanSampleCosts small(*CostModel::create(tiny), tiny);
  EXPECT_GT(small.llm_ms({.vision = {}, .audio = {}, .llm = {{96, 1}}}),
            2 * small.llm_ms({.vision = {}, .audio = {}, .llm = {{24, 1}}}))
      << "samples of tiny models are told apart too";
}

}  // namespace
}  // namespace weft::sample_cost_test
