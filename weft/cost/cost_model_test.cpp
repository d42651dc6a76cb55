#include "weft/cost/cost_model.h"

#include <memory>

#include <gtest/gtest.h>

#include "tests/support/cost/example_plan.h"
#include "tests/support/source_tree.h"
#include "weft/cost/collective_time.h"
#include "weft/plan/plan_json.h"
#include "weft/spec/scenario.h"

namespace weft {
namespace {

Plan shipped(const std::string& name) {
  return *read_plan_file(source_tree().string() + "/scenarios/plans/" + name + ".json");
}

const std::vector<std::string> kShipped = {"llama3-70b_interleaved_tp8_pp4_vpp5",
                                           "llama3-8b_cp4_ulysses2",
                                           "llama3-8b_gpipe_tp2_pp2_dp2",
                                           "llama3-8b_zero3_dp8",
                                           "qwen2-vl-72b_16384",
                                           "qwen2-vl-7b_colocated_before",
                                           "qwen2-vl-7b_inline",
                                           "qwen2-vl-7b_partial",
                                           "qwen2.5-omni-7b_colocated_dp8",
                                           "qwen2.5-vl-7b_disjoint_stream",
                                           "qwen3-30b-a3b_zb_h1_ep8",
                                           "qwen3-8b_zb_v_pp4"};

/// With the model that its modules belong to.
struct Priced : PlanCosts {
  std::unique_ptr<CostModel> model;
};

Priced price(const Plan& plan) {
  Priced priced;
  priced.model = std::make_unique<CostModel>(*CostModel::create(plan));
  priced.model->price(plan, priced);
  return priced;
}

std::vector<double> numbers(const StageCost& s) {
  return {s.forward_ms(),
          s.backward_input_ms(),
          s.backward_weight_ms(),
          s.recompute.total_ms(),
          s.transfer_ms,
          s.transfer_busy_ms,
          s.reduce_ms,
          s.update_ms,
          s.zero_forward_ms,
          s.zero_backward_ms,
          s.offload_forward_ms,
          s.offload_backward_ms,
          s.state.weights,
          s.state.gradients,
          s.state.optimizer,
          s.activation_bytes,
          s.deferred_bytes,
          s.workspace_bytes,
          s.flight_bytes,
          s.passing_bytes,
          s.transfer_bytes};
}

std::vector<std::vector<double>> all_numbers(const PlanCosts& costs) {
  std::vector<std::vector<double>> rows;
  for (const StageCost& stage : costs.stages) rows.push_back(numbers(stage));
  for (const PlanCosts::Encoder& encoder : costs.encoders) {
    for (const StageCost& stage : encoder.stages) rows.push_back(numbers(stage));
  }
  return rows;
}

TEST(CostModel, WhatIsKeptFromEarlierPlansChangesNothing) {
  // One model prices variants in turn; each must come out as from a model of its own.
  const Plan plan = shipped("qwen2-vl-7b_inline");
  CostModel kept = *CostModel::create(plan);
  PlanCosts costs;
  std::vector<Plan> variants;
  for (const int64_t mbs : {1, 2, 4, 1}) {
    for (const bool sequence_parallel : {true, false}) {
      for (const std::vector<std::string>& order :
           std::vector<std::vector<std::string>>{{"tp", "cp", "dp", "pp"}, {"pp", "cp", "dp", "tp"}}) {
        Plan variant = plan;
        variant.schedule.mbs = mbs;
        variant.schedule.microbatches = 32 / mbs;
        for (ModulePlan& module : variant.modules) {
          module.sequence_parallel = sequence_parallel;
          module.axis_order = order;
        }
        variants.push_back(variant);
        variant.overlap_tp = !variant.overlap_tp;
        variants.push_back(std::move(variant));
      }
    }
  }
  for (int round = 0; round < 2; ++round) {
    for (const Plan& variant : variants) {
      // Blocks alone are priced first by searches.
      const ModuleCosts& blocks = kept.block_costs(variant, variant.llm(), static_cast<double>(variant.schedule.mbs));
      kept.price(variant, costs);
      EXPECT_EQ(blocks.setting, costs.modules.back()->setting);
      EXPECT_EQ(blocks.exit.time.forward.total_ms(), costs.modules.back()->exit.time.forward.total_ms());
      EXPECT_EQ(all_numbers(costs), all_numbers(price(variant)));
    }
  }
}

TEST(CostModel, EveryStageIsPricedByItsOwnLayers) {
  const Cluster cluster = ideal_cluster();
  const Plan plan = text_plan(gpt_model({.layers = 12}), cluster, {.pp = 3}, 512, {}, {{1}, {7}, {4}});
  const Priced costs = price(plan);
  const double layer = costs.modules.front()->distinct_layers.front().time.forward.total_ms();
  const double head = costs.modules.front()->exit.time.forward.total_ms();
  EXPECT_NEAR(costs.stages[0].forward_ms(), layer, 1e-9);
  EXPECT_NEAR(costs.stages[1].forward_ms(), 7 * layer, 1e-9);
  EXPECT_NEAR(costs.stages[2].forward_ms(), 4 * layer + head, 1e-9);
}

/// What a stage's ranks wait for. A reduction alone may become shorter where the backward that hides it is longer.
std::vector<double> waits(const StageCost& s) {
  const double microbatch = s.forward_ms() + s.backward_input_ms() + s.backward_weight_ms();
  return {s.forward_ms(), microbatch,         microbatch + s.reduce_ms + s.update_ms,
          s.transfer_ms,  s.transfer_busy_ms, s.recompute.total_ms()};
}

std::vector<std::vector<double>> all_waits(const PlanCosts& costs) {
  std::vector<std::vector<double>> rows;
  for (const StageCost& stage : costs.stages) rows.push_back(waits(stage));
  for (const PlanCosts::Encoder& encoder : costs.encoders) {
    for (const StageCost& stage : encoder.stages) rows.push_back(waits(stage));
    rows.push_back({encoder.bridge_ms});
  }
  return rows;
}

TEST(CostModel, SlowerLinksNeverMakeAnythingFaster) {
  for (const std::string& name : kShipped) {
    const Plan plan = shipped(name);
    const auto before = all_waits(price(plan));
    for (const bool is_between : {false, true}) {
      Plan slower = plan;
      (is_between ? slower.cluster.between_nodes : slower.cluster.within_node).bandwidth_gb_per_s /= 2;
      const auto after = all_waits(price(slower));
      ASSERT_EQ(before.size(), after.size());
      for (size_t stage = 0; stage < before.size(); ++stage) {
        for (size_t i = 0; i < before[stage].size(); ++i)
          EXPECT_GE(after[stage][i], before[stage][i] * (1 - 1e-12)) << name << " stage " << stage << " number " << i;
      }
    }
  }
}

TEST(CostModel, RecomputingMoreTakesNoLessTimeAndKeepsNoMore) {
  for (const std::string& name : kShipped) {
    const Plan plan = shipped(name);
    std::vector<Priced> steps;
    for (int how = 0; how < 3; ++how) {
      Plan changed = plan;
      for (ModulePlan& module : changed.modules) {
        for (size_t rank = 0; rank < module.recompute.size(); ++rank) {
          for (size_t chunk = 0; chunk < module.recompute[rank].size(); ++chunk) {
            const int64_t layers = module.layers[rank][chunk];
            module.recompute[rank][chunk] =
                RecomputeCounts{.full = how == 2 ? layers : 0, .selective = how == 1 ? layers : 0};
          }
        }
      }
      steps.push_back(price(changed));
    }
    for (size_t how = 1; how < steps.size(); ++how) {
      for (size_t s = 0; s < steps[how].stages.size(); ++s) {
        const StageCost& less = steps[how - 1].stages[s];
        const StageCost& more = steps[how].stages[s];
        EXPECT_GE(more.backward_input_ms(), less.backward_input_ms()) << name << " stage " << s;
        EXPECT_LE(more.activation_bytes, less.activation_bytes) << name << " stage " << s;
        EXPECT_EQ(more.forward_ms(), less.forward_ms()) << name << " stage " << s;
      }
    }
    EXPECT_LT(steps[2].stages.front().activation_bytes, steps[0].stages.front().activation_bytes) << name;
  }
}

TEST(CostModel, RecomputationRepeatsTheForwardOrItsAttention) {
  Plan plan = text_plan(gpt_model({.layers = 6}), shipped("qwen2-vl-7b_inline").cluster, {}, 512);
  plan.modules[0].recompute = {{RecomputeCounts{.full = 3, .selective = 2}}};
  const Priced costs = price(plan);
  const BlockCost& layer = costs.modules.front()->distinct_layers.front();
  EXPECT_NEAR(costs.stages[0].recompute.total_ms(),
              3 * layer.time.forward.total_ms() + 2 * layer.time.attention.total_ms(), 1e-9);
  EXPECT_GT(layer.time.attention.total_ms(), 0);
  EXPECT_LT(layer.time.attention.total_ms(), layer.time.forward.total_ms());
  EXPECT_NEAR(costs.stages[0].activation_bytes,
              3 * layer.memory.saved_full + 2 * layer.memory.saved_selective + layer.memory.saved +
                  costs.modules.front()->entry.memory.saved + costs.modules.front()->exit.memory.saved,
              1);
  EXPECT_GE(costs.stages[0].workspace_bytes, layer.memory.workspace + layer.memory.saved)
      << "a block that is recomputed is there as a whole";
}

TEST(CostModel, DataHasNoGradient) {
  const Plan plan = shipped("qwen2-vl-7b_inline");
  const Priced costs = price(plan);
  const ModuleCosts& vision = *costs.modules[0];
  const ModuleCosts& llm = *costs.modules[1];
  ASSERT_EQ(vision.distinct_layers.size(), 1u);
  EXPECT_GT(vision.entry.time.backward_input.total_ms(), 0) << "the patch embedding is a product";
  EXPECT_NEAR(costs.stages[0].backward_input.total_ms(),
              32 * vision.distinct_layers[0].time.backward_input.total_ms() +
                  vision.exit.time.backward_input.total_ms() +
                  4 * llm.distinct_layers[0].time.backward_input.total_ms() + llm.entry.time.backward_input.tp_ms,
              1e-9)
      << "but gradients of the embedding's rows become whole";
}

TEST(CostModel, StagesPassOneMicrobatchsRowsOnAndHaveRoomForTwo) {
  Cluster cluster = ideal_cluster();
  cluster.within_node = {.bandwidth_gb_per_s = 10, .latency_us = 7};
  Plan plan = text_plan(gpt_model({.width = 1024}), cluster, {.tp = 2, .pp = 2, .sequence_parallel = true}, 512);
  const double bytes = 512 * 1024 * 2 / 2;  // half of the rows to each of two ranks
  const StageCost divided = price(plan).stages[0];
  EXPECT_NEAR(divided.transfer_busy_ms, bytes / 10e6, 1e-9);
  EXPECT_NEAR(divided.transfer_ms, 7e-3, 1e-9);
  const double gradient = (1024 * 4096 + 4096) * 2 / 2;  // of half of the largest weight, with its bias
  EXPECT_NEAR(divided.transfer_bytes, 2 * bytes, 1e-6);
  EXPECT_NEAR(divided.passing_bytes, gradient, 1e-6);
  plan.modules[0].sequence_parallel = false;
  const StageCost whole = price(plan).stages[0];
  EXPECT_NEAR(whole.transfer_busy_ms, bytes / 10e6, 1e-9) << "they travel in parts";
  EXPECT_NEAR(whole.transfer_ms, 7e-3 + bytes / 10e6 + 7e-3, 1e-9) << "and are joined at the other end";
  EXPECT_NEAR(whole.transfer_bytes, 2 * bytes, 1e-6);
  EXPECT_EQ(price(plan).stages[1].transfer_busy_ms, 0);
}

TEST(CostModel, StagesBetweenAnInlineEncoderAndTheLlmPassItsOutputOn) {
  Plan plan = shipped("qwen2-vl-7b_inline");
  plan.modules[0].layers = {{32}, {0}, {0}, {0}};
  plan.modules[1].layers = {{0}, {0}, {14}, {14}};
  const Priced costs = price(plan);
  const ModuleCosts& vision = *costs.modules[0];
  // 1.55 images of 1078.4 patches, a quarter as many embeddings, 3584 wide in bf16, to two tp ranks.
  EXPECT_NEAR(vision.output_bytes, 1.55 * 1078.4 / 4 * 3584 * 2 / 2, 0.01 * vision.output_bytes);
  const double passed_ms = vision.output_bytes / vision.pipeline_link.ring_bytes_per_ms;
  EXPECT_NEAR(costs.stages[0].transfer_busy_ms, passed_ms, 1e-9);
  EXPECT_NEAR(costs.stages[1].transfer_busy_ms, passed_ms, 1e-9);
  EXPECT_NEAR(costs.stages[2].transfer_busy_ms,
              costs.modules[1]->boundary_bytes / vision.pipeline_link.ring_bytes_per_ms, 1e-9);
}

TEST(CostModel, AStageCostsWhatItsPartsCostApart) {
  for (const int64_t zero : {1, 3}) {
    Plan plan = shipped("qwen2-vl-7b_inline");
    plan.modules[0].layers = {{20}, {12}, {0}, {0}};
    plan.modules[1].layers = {{0}, {4}, {12}, {12}};
    plan.modules[0].recompute = {{RecomputeCounts{.full = 5}}, {RecomputeCounts{.full = 3}}, {{}}, {{}}};
    plan.modules[1].recompute = {{{}}, {RecomputeCounts{.full = 2}}, {{}}, {{}}};
    for (ModulePlan& module : plan.modules) module.zero = zero;
    const Priced costs = price(plan);
    const TiedTable table = tied_table(plan, costs.parts);
    std::vector<StageCost> together(costs.stages.size()), apart(costs.stages.size());
    for (const StagePart& part : costs.parts) {
      const ModuleCosts& module = *costs.modules[static_cast<size_t>(part.module)];
      const auto stage = static_cast<size_t>(part.stage);
      price_part(plan, part, module, table, together[stage]);
      StageCost alone;
      price_part(plan, part, module, table, alone);
      add_part_cost(alone, apart[stage]);
    }
    for (size_t s = 0; s < together.size(); ++s) {
      const std::vector<double> expected = numbers(together[s]), found = numbers(apart[s]);
      for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-12 * std::abs(expected[i]));
    }
  }
}

TEST(CostModel, StagesOfAnEncodersOwnPipelineJoinRowsLikeOthers) {
  for (const bool divides_rows : {false, true}) {
    Plan plan = shipped("qwen2-vl-7b_inline");
    ASSERT_EQ(plan.modules[0].tp, 2);
    plan.modules[0].sequence_parallel = divides_rows;
    const Priced costs = price(plan);
    const ModuleCosts& vision = *costs.modules[0];
    plan.modules[0].layers = {{16}, {16}};
    std::vector<StageCost> stages;
    price_encoder(plan, 0, vision, stages);
    const double join_ms = divides_rows ? 0 : all_gather_ms(vision.setting.tp_link, 2 * vision.boundary_bytes);
    EXPECT_NEAR(stages[0].transfer_ms, vision.pipeline_link.latency_ms + join_ms, 1e-9);
    EXPECT_NEAR(stages[0].transfer_busy_ms, vision.boundary_bytes / vision.pipeline_link.ring_bytes_per_ms, 1e-9);
    EXPECT_EQ(stages[1].transfer_ms, 0);
  }
}

TEST(CostModel, FrozenModulesHaveNoBackward) {
  Plan plan = shipped("qwen2-vl-7b_inline");
  const StageCost trained = price(plan).stages.front();
  plan.workload.frozen = {ModuleKind::kVision};
  const Priced costs = price(plan);
  const ModuleCosts& llm = *costs.modules[1];
  const auto layers = static_cast<double>(plan.modules[1].layers[0][0]);
  EXPECT_NEAR(
      costs.stages.front().backward_weight.total_ms(),
      layers * llm.distinct_layers.front().time.backward_weight.total_ms() + llm.entry.time.backward_weight.total_ms(),
      1e-9)
      << "only the llm's own";
  EXPECT_LT(costs.stages.front().activation_bytes, trained.activation_bytes);
  EXPECT_EQ(costs.stages.front().forward_ms(), trained.forward_ms());
  // A frozen llm hands gradients on to a trained encoder, but makes none of its own.
  plan.workload.frozen = {ModuleKind::kLlm};
  const StageCost last = price(plan).stages.back();
  EXPECT_EQ(last.backward_weight.total_ms(), 0);
  EXPECT_GT(last.backward_input.total_ms(), 0);
  EXPECT_EQ(last.state.optimizer, 0);
}

TEST(CostModel, MemoryAllowsForLargeMicrobatchesAndTimeIsTheMeans) {
  const Scenarios scenarios(source_tree() / "scenarios");
  Plan plan = text_plan(*scenarios.model("llama3-8b"), ideal_cluster(), {.dp = 1}, 1000, {.mbs = 4});
  plan.workload.tokens = Distribution::weighted({{500, 0.5}, {1500, 0.5}});
  const Priced spread = price(plan);
  plan.workload.tokens = Distribution::constant(1000);
  const Priced constant = price(plan);
  // Four standard deviations of four samples are 4 · 2 · 500 above 4000: capped at what four samples can have, 6000.
  EXPECT_NEAR(spread.stages[0].activation_bytes / constant.stages[0].activation_bytes, 1.5, 1e-9);
  // Products are linear in tokens; attention's pairs make the mean batch's time slightly longer.
  EXPECT_NEAR(spread.stages[0].forward_ms() / constant.stages[0].forward_ms(), 1, 0.02);
}

TEST(CostModel, OffloadedActivationsLeaveTheDeviceAndTakeTheHostsLink) {
  Plan plan = text_plan(gpt_model({}), ideal_cluster(), {}, 512);
  const StageCost whole = price(plan).stages.front();
  plan.cluster.host = {.bandwidth_gb_per_s = 1};
  plan.offload.activations = 0.5;
  const StageCost half = price(plan).stages.front();
  EXPECT_NEAR(half.activation_bytes, whole.activation_bytes / 2, 1);
  EXPECT_NEAR(half.offload_forward_ms, whole.activation_bytes / 2 / 1e6, 1e-9);
  EXPECT_NEAR(half.offload_backward_ms, half.offload_forward_ms, 1e-9);
}

std::string refusal(const Plan& plan, const Profile* profile = nullptr) {
  const Result<CostModel> model = CostModel::create(plan, profile);
  return model.ok() ? "" : model.error().message();
}

TEST(CostModel, AClusterThatLacksWhatThePlanNeedsIsNamed) {
  Plan plan = text_plan(gpt_model({}), ideal_cluster(), {}, 512);
  EXPECT_EQ(refusal(plan), "");
  plan.precision.compute = Precision::kFp16;
  EXPECT_EQ(refusal(plan),
            "ideal: device.matrix_tflops: has no rate for fp16, in which the plan computes; given are fp32 or bf16. "
            "Add the device's rate to the cluster, or plan in another precision.");
  plan.precision.compute = Precision::kBf16;
  plan.offload.optimizer = 0.1;
  EXPECT_EQ(refusal(plan),
            "ideal: links.host: is missing, but the plan offloads to the host. Add its bandwidth_gb_per_s and "
            "latency_us to the cluster, or leave the plan's offload empty.");
}

TEST(CostModel, AProfileOfSomethingElseIsRefused) {
  const Plan plan = text_plan(gpt_model({}), ideal_cluster(), {}, 512);
  Profile profile;
  profile.source = "p.json";
  profile.device = "ideal device";
  profile.model = "gpt";
  profile.model_hash = hash_of(plan.model.config);
  EXPECT_EQ(refusal(plan, &profile), "");
  Profile other = profile;
  other.device = "A100";
  EXPECT_EQ(refusal(plan, &other),
            "p.json: device: is 'A100', but the cluster ideal has 'ideal device'. Use a profile of this device, or "
            "leave the profile out.");
  other = profile;
  other.model_hash = "12";
  EXPECT_EQ(refusal(plan, &other), "p.json: model_hash: is '12' (of 'gpt'), but the plan's model gpt has " +
                                       profile.model_hash + ". Use a profile of this model, or leave the profile out.");
  other = profile;
  other.precision = Precision::kFp32;
  EXPECT_EQ(refusal(plan, &other),
            "p.json: precision: is fp32, but the plan computes in bf16. Use a profile in this precision, or leave the "
            "profile out.");
}

TEST(CostModel, AWorkloadThatTrainsNothingIsRefused) {
  Plan plan = text_plan(gpt_model({}), ideal_cluster(), {}, 512);
  plan.workload.frozen = {ModuleKind::kLlm};
  EXPECT_NE(refusal(plan), "");
}

double buffers_of(const Plan& plan, size_t stage) {
  CostModel model = *CostModel::create(plan);
  PlanCosts costs;
  model.price(plan, costs);
  return costs.stages[stage].buffer_bytes() + costs.stages[stage].passing_bytes;
}

TEST(CostModel, TheLargestWeightsGradientIsThereWholeBeforeItIsScattered) {
  Plan plan = text_plan(gpt_model({.layers = 2, .vocabulary = 100'000}), ideal_cluster(), {.dp = 2}, 128);
  const double product = 100'000.0 * 1024 * 2, gradient = 2 * product;
  EXPECT_NEAR(buffers_of(plan, 0), product + 2 * plan.buckets_mb * 1e6, 1);
  // With ZeRO 2 another may be on its way, and half of one more; what comes back of them is half as large.
  plan.modules.front().zero = 2;
  EXPECT_NEAR(buffers_of(plan, 0), product + gradient + 1.5 * gradient * 1.5, 1);
}

TEST(CostModel, ATiedHeadOnALastStageGathersItsTable) {
  const GptShape shape{.layers = 2, .vocabulary = 100'000, .is_tied = true};
  const Plan plan = text_plan(gpt_model(shape), ideal_cluster(), {.pp = 2, .dp = 2, .zero = 3}, 128);
  EXPECT_GE(buffers_of(plan, 1), 2 * 100'000.0 * 1024 * 2);
}

TEST(CostModel, AGathersLatencyCountsOnceABlockAndPass) {
  Cluster cluster = ideal_cluster(2, 8);
  double before = -1;
  for (const double latency_us : {0.0, 1000.0, 30000.0}) {
    cluster.between_nodes.latency_us = latency_us;
    Plan plan = text_plan(gpt_model({.layers = 4}), cluster, {.dp = 16, .zero = 3}, 128);
    plan.overlap_dp = false;
    const Priced costs = price(plan);
    const StageCost& stage = costs.stages.front();
    // Embedding, four layers and head: a gather each, going back a gather and a scatter, each with one hop between
    // nodes.
    EXPECT_NEAR(stage.zero_forward_ms, 6 * latency_us * 1e-3, 1e-9);
    EXPECT_NEAR(stage.zero_backward_ms, 12 * latency_us * 1e-3, 1e-9);
    EXPECT_GT(stage.zero_forward_ms, before);
    before = stage.zero_forward_ms;
  }
}

TEST(CostModel, TransfersAndGathersShareTheCardsOfANode) {
  Cluster cluster = ideal_cluster(2, 2);
  cluster.between_nodes.bandwidth_gb_per_s = 1;
  const auto busy_ms = [&](int64_t zero) {
    Plan plan = text_plan(gpt_model({.layers = 4}), cluster, {.pp = 2, .dp = 2, .zero = zero}, 128);
    plan.modules.front().axis_order = {"tp", "cp", "pp", "dp"};
    return price(plan).stages.front().transfer_busy_ms;
  };
  EXPECT_EQ(busy_ms(3), busy_ms(0)) << "stages are neighbours in a node";
  cluster = ideal_cluster(4, 1);
  cluster.between_nodes.bandwidth_gb_per_s = 1;
  EXPECT_GT(busy_ms(3), 1.5 * busy_ms(0)) << "gathers take most of the time";
  EXPECT_LE(busy_ms(3), 2 * busy_ms(0)) << "each has at least half of the card";
}

TEST(CostModel, MemoryHoldsTheLongestSampleHoweverRareItIs) {
  Plan plan = text_plan(gpt_model({.layers = 2, .positions = 40'000}), ideal_cluster(), {}, 512);
  const auto activations = [](const Plan& priced) {
    CostModel model = *CostModel::create(priced);
    PlanCosts costs;
    model.price(priced, costs);
    return costs.stages.front().activation_bytes;
  };
  plan.workload.tokens = Distribution::constant(32'768);
  const double longest = activations(plan);
  plan.workload.tokens = Distribution::weighted({{512, 0.9999}, {32'768, 0.0001}});
  EXPECT_NEAR(activations(plan), longest, 1e-6 * longest);
}

TEST(CostModel, TensorParallelTrafficHidesOnlyBehindTheOtherHalfOfTheSameBackward) {
  Cluster cluster = ideal_cluster();
  cluster.within_node.bandwidth_gb_per_s = 100;
  cluster.efficiency.overlap = 1;
  Plan plan = text_plan(gpt_model({}), cluster, {.tp = 2, .pp = 2}, 512, {.name = "1f1b", .microbatches = 4});
  plan.overlap_tp = true;
  const auto tp_ms = [](const Plan& priced) {
    CostModel model = *CostModel::create(priced);
    PlanCosts costs;
    model.price(priced, costs);
    return costs.stages[1].backward_input.tp_ms + costs.stages[1].backward_weight.tp_ms;
  };
  const double whole = tp_ms(plan);
  plan.schedule.name = "zb_h1";
  const double split = tp_ms(plan);
  EXPECT_LT(whole, split);
  plan.overlap_tp = false;
  EXPECT_DOUBLE_EQ(tp_ms(plan), split) << "a split backward has nothing to hide it behind";
}

}  // namespace
}  // namespace weft
