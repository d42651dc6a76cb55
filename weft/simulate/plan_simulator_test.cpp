#include "weft/simulate/plan_simulator.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <set>

#include <gtest/gtest.h>

#include "tests/support/cost/example_plan.h"
#include "tests/support/source_tree.h"
#include "weft/base/units.h"
#include "weft/meaning/check.h"
#include "weft/meaning/plan_batch.h"
#include "weft/meaning/plan_schedule.h"
#include "weft/meaning/put_rows.h"
#include "weft/plan/mbs_scale.h"
#include "weft/plan/plan_json.h"
#include "weft/schedule/lowering.h"
#include "weft/schedule/schedule_kind.h"
#include "weft/simulate/drawn_samples.h"

namespace weft::plan_simulator_test {
namespace {

const std::filesystem::path kPlans = source_tree() / "scenarios" / "plans";

Plan shipped(const std::string& name) {
  return *read_plan_file(kPlans / (name + ".json"));
}

std::vector<std::string> shipped_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kPlans)) {
    if (entry.path().extension() == ".json") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

PlanReport simulate(const Plan& plan, std::optional<int64_t> batches = 0) {
  const Result<PlanReport> report = simulate_plan(plan, {.batches = batches});
  EXPECT_TRUE(report.ok()) << report.error().message();
  return *report;
}

struct EqualStages {
  int64_t pp = 4, dp = 2, microbatches = 8;
  double layers_per_stage = 3, width = 4096, tokens = 256;
};

/// Stages of equal work: no head to speak of, pipeline links that cost nothing, reduction and update that do.
Plan equal_stages(const EqualStages& e) {
  Cluster cluster = ideal_cluster(e.pp, e.dp);
  cluster.device.memory_bandwidth_gb_per_s = 1e30;
  cluster.efficiency.update = 1e-27;  // 1000 GB/s
  cluster.within_node.bandwidth_gb_per_s = 100;
  Plan plan =
      text_plan(gpt_model({.width = static_cast<int64_t>(e.width),
                           .heads = 32,
                           .layers = static_cast<int64_t>(e.layers_per_stage) * e.pp,
                           .positions = static_cast<int64_t>(e.tokens),
                           .vocabulary = 1}),
                cluster, {.pp = e.pp, .dp = e.dp}, static_cast<int64_t>(e.tokens), {.microbatches = e.microbatches});
  plan.overlap_dp = false;
  EXPECT_TRUE(check_plan(plan).empty());
  return plan;
}

TEST(PlanSimulator, EqualStagesTakeTheTextbooksTimeThenReduceAndUpdate) {
  for (const auto& [pp, dp, microbatches] : {std::array<int64_t, 3>{1, 1, 3}, {2, 1, 2}, {4, 2, 8}, {8, 4, 32}}) {
    const EqualStages e{.pp = pp, .dp = dp, .microbatches = microbatches};
    const double h = e.width, s = e.tokens, rate = 100e9;
    const double products = 24 * s * h * h, attention = 4 * (s * (s + 1) / 2) * h;
    const double forward = e.layers_per_stage * (products + attention) / rate;
    const double backward = e.layers_per_stage * (2 * products + 2.5 * attention) / rate;
    // Rank 0 ends last. It has a table of one word and the positions besides its layers.
    const double elements = e.layers_per_stage * (12 * h * h + 13 * h) + (1 + s) * h;
    const double reduce = dp == 1 ? 0 : 2 * (1 - 1.0 / static_cast<double>(dp)) * 4 * elements / 100e6;
    const double update = elements * 34 / 1e9;
    const double expected = static_cast<double>(microbatches + pp - 1) * (forward + backward) + reduce + update;
    const PlanReport report = simulate(equal_stages(e));
    // The head's one class is (h · 1) of 12 h² · layers.
    EXPECT_NEAR(report.step_time_ms / expected, 1, 2e-4) << "pp " << pp << " dp " << dp;
    EXPECT_NEAR(report.rows.front().time.dp_ms, reduce, 1e-3 * reduce) << "pp " << pp << " dp " << dp;
  }
}

TEST(PlanSimulator, TheHostStartsEveryActionOfAPipelineAndNoneWithout) {
  for (const int64_t pp : {1, 4}) {
    Plan plan = equal_stages({.pp = pp, .dp = 1, .microbatches = 6});
    plan.cluster.efficiency.action_us = 500;
    for (const ScheduleRowReport& row : simulate(plan).rows)
      EXPECT_NEAR(row.time.host_ms, pp == 1 ? 0 : 6 * 2 * 0.5, 1e-9);
  }
}

TEST(PlanSimulator, SplitBackwardsHoldMoreUntilTheWeightGradient) {
  Plan plan = equal_stages({.pp = 2, .dp = 1, .microbatches = 4});
  PlanSimulator simulator = *PlanSimulator::create(plan);
  PlanCosts costs = simulator.price(plan);
  for (StageCost& stage : costs.stages) stage.deferred_bytes = 1e9;
  const auto activations = [&](const std::string& name) {
    plan.schedule.name = name;
    return memory_of_schedule_rows(plan, *playable_schedule(plan), costs).front().activations;
  };
  EXPECT_NEAR(activations("1f1b"), 2 * costs.stages[0].activation_bytes, 1);
  // The first rank runs each weight gradient right after its input gradient, with another microbatch in flight.
  EXPECT_NEAR(activations("zb_h1"), 2 * costs.stages[0].activation_bytes + 1e9, 1);
}

TEST(PlanSimulator, RecomputedBlocksHoldWhatTheirDeferredWeightGradientsRead) {
  Plan plan = text_plan(gpt_model({.layers = 8}), ideal_cluster(), {.pp = 4}, 512, {.name = "1f1b", .microbatches = 8});
  for (auto& row : plan.modules.front().recompute) row.front() = RecomputeCounts{.full = 2};
  const auto activations = [](const Plan& played) { return simulate_plan(played)->rows.back().memory.activations; };
  const double whole = activations(plan);
  plan.schedule.name = "zb_h1";
  // On the last rank, after an input gradient and before its weight gradient: inputs and output gradients of the four
  // products of two layers, far more than the two inputs that 1F1B holds.
  const double rows = 512, width = 1024;
  const double of_a_layer = rows * width * 2 * ((1 + 1 + 1 + 4) + (3 + 1 + 4 + 1));
  EXPECT_GE(activations(plan), whole + 2 * of_a_layer - 2 * rows * width * 2);
}

TEST(PlanSimulator, RulesThatFreezeAModuleArePricedAsAFrozenModule) {
  for (const char* name : {"qwen2-vl-7b_inline", "qwen2-vl-7b_colocated_before", "qwen2.5-vl-7b_disjoint_stream"}) {
    const auto report = [&](bool is_frozen, std::vector<TrainRule> rules) {
      Plan plan = shipped(name);
      if (is_frozen) plan.workload.frozen = {ModuleKind::kVision};
      plan.modules[0].recompute_from_inputs = false;
      plan.trainable = std::move(rules);
      EXPECT_TRUE(check_plan(plan).empty()) << check_plan(plan).front().message;
      return *simulate_plan(plan, {.batches = 0});
    };
    const PlanReport trained = report(false, {}), frozen = report(true, {});
    const PlanReport by_rule = report(false, {{"visual.*", false}});
    const PlanReport merger = report(false, {{"visual.*", false}, {"visual.merger.*", true}});
    EXPECT_NEAR(by_rule.step_time_ms, frozen.step_time_ms, 1e-9 * frozen.step_time_ms) << name;
    EXPECT_NEAR(by_rule.peak_memory_bytes(), frozen.peak_memory_bytes(), 1) << name;
    EXPECT_NEAR(report(false, {{"*", true}}).step_time_ms, trained.step_time_ms, 1e-9 * trained.step_time_ms) << name;
    // Ranks of its own are hardly what the step waits for.
    const bool is_apart = shipped(name).modules[0].placement == ModulePlacement::kDisjoint;
    EXPECT_GE(merger.step_time_ms, (1 - 1e-9) * frozen.step_time_ms) << name;
    EXPECT_TRUE(is_apart || merger.step_time_ms > frozen.step_time_ms) << name;
    const ScheduleRowReport &less = is_apart ? merger.rows.back() : merger.fullest(),
                            &more = is_apart ? trained.rows.back() : trained.fullest();
    EXPECT_LT(less.memory.total(), more.memory.total()) << name;
    EXPECT_LE(merger.step_time_ms, (1 + 1e-9) * trained.step_time_ms) << name;
    EXPECT_TRUE(is_apart || merger.step_time_ms < trained.step_time_ms) << name;
  }
}

TEST(PlanSimulator, RowsOfAScheduleTakeAsLongAsItsName) {
  std::set<std::string> schedules;
  for (const std::string& name : shipped_names()) {
    const Plan plan = shipped(name);
    Plan explicit_plan = *with_rows(plan, *pipeline_schedule(plan));
    for (size_t m = 0; m < plan.modules.size(); ++m) {
      EXPECT_EQ(explicit_plan.modules[m].layers, plan.modules[m].layers) << name;
      EXPECT_EQ(explicit_plan.modules[m].recompute, plan.modules[m].recompute) << name;
      explicit_plan.modules[m].actions = plan.modules[m].actions;
    }
    EXPECT_TRUE(check_plan(explicit_plan).empty()) << name;
    const PlanReport by_rows = *simulate_plan(explicit_plan, {.batches = 2}),
                     by_name = *simulate_plan(plan, {.batches = 2});
    EXPECT_EQ(by_rows.step_time_ms, by_name.step_time_ms) << name;
    EXPECT_EQ(by_rows.peak_memory_bytes(), by_name.peak_memory_bytes()) << name;
    schedules.insert(plan.schedule.name);
  }
  EXPECT_EQ(schedules.size(), schedule_kinds().size());
}

TEST(PlanSimulator, TheIdleShareOfEqualStagesIsTheTextbooks) {
  EqualStages e{.pp = 4, .dp = 1, .microbatches = 12};
  Plan plan = equal_stages(e);
  plan.cluster.efficiency.update = 1;
  EXPECT_NEAR(simulate(plan).bubble_fraction, 3.0 / 15, 1e-4);
}

TEST(PlanSimulator, ThroughputAndUtilizationFollowFromTheStep) {
  const EqualStages e{.pp = 1, .dp = 1, .microbatches = 5};
  Plan plan = equal_stages(e);
  plan.cluster.efficiency.update = 1;
  const PlanReport report = simulate(plan);
  EXPECT_NEAR(report.throughput_samples_per_s, 5 / (report.step_time_ms * 1e-3), 1e-9);
  EXPECT_NEAR(report.tokens_per_s_per_device, 256 * 5 / (report.step_time_ms * 1e-3), 1e-6);
  // Nothing is lost but the scores that fused attention computes twice.
  EXPECT_GT(report.model_flops_utilization, 0.99);
  EXPECT_LE(report.model_flops_utilization, 1);
}

double sum(const TimeSplit& t) {
  return t.compute_ms + t.recompute_ms + t.encoder_ms + t.tp_ms + t.cp_ms + t.ep_ms + t.zero_ms + t.offload_ms +
         t.host_ms + t.update_ms + t.dp_ms + t.transfer_ms + t.bubble_ms;
}

TEST(PlanSimulator, EveryRowsTimeAddsUpToTheStepInEveryShippedPlan) {
  ASSERT_GE(shipped_names().size(), 14u);
  for (const std::string& name : shipped_names()) {
    const PlanReport report = simulate(shipped(name));
    double idle = 0;
    for (const ScheduleRowReport& row : report.rows) {
      EXPECT_NEAR(sum(row.time), report.step_time_ms, 1e-6 * report.step_time_ms) << name << " " << row.name;
      EXPECT_GE(row.time.bubble_ms, 0) << name;
      EXPECT_GE(row.time.compute_ms + row.time.encoder_ms, 0.05 * report.step_time_ms) << name << " " << row.name;
      EXPECT_GT(row.memory.weights, 0) << name << " " << row.name;
      idle += row.time.bubble_ms + row.time.dp_ms + row.time.transfer_ms;
    }
    EXPECT_NEAR(report.bubble_fraction, idle / (report.step_time_ms * static_cast<double>(report.rows.size())), 1e-9)
        << name;
  }
}

TEST(PlanSimulator, LanguageModelsSpendNoTimeOnEncoders) {
  for (const int64_t zero : {0, 1, 2, 3}) {
    Cluster cluster = ideal_cluster();
    cluster.within_node.bandwidth_gb_per_s = 1;
    Plan plan =
        text_plan(gpt_model({.layers = 8}), cluster, {.tp = 2, .dp = 4}, 512, {.name = "1f1b", .microbatches = 8});
    for (ModulePlan& module : plan.modules) module.zero = zero;
    ASSERT_TRUE(check_plan(plan).empty()) << zero;
    const TimeSplit time = simulate(plan).rows.front().time;
    EXPECT_NEAR(time.encoder_ms, 0, 1e-9 * time.tp_ms) << zero;
    EXPECT_GT(time.tp_ms, 0);
  }
}

TEST(PlanSimulator, WhatIsSaidOfTimesIsWhatTheTimelineShows) {
  Timeline timeline;
  const Plan plan = shipped("qwen2.5-vl-7b_colocated_fill");
  const PlanReport report = *simulate_plan(plan, {.batches = 0, .timeline = &timeline});
  EXPECT_DOUBLE_EQ(timeline.makespan_ms, report.step_time_ms);
  EXPECT_EQ(timeline.ranks.size(), report.rows.size());
  PlanSimulator simulator = *PlanSimulator::create(plan);
  const StageCost& encoder = simulator.price(plan).encoders.front().stages.front();
  EXPECT_GT(encoder.reduce_ms, 0);
  EXPECT_GT(encoder.update_ms, 0);
  for (size_t r = 0; r < timeline.ranks.size(); ++r) {
    double encoders = 0, reductions = 0, updates = 0;
    for (const TimelineEvent& event : timeline.ranks[r]) {
      const double ms = event.end_ms - event.start_ms;
      if (is_encoder_compute(event.action.kind)) encoders += ms;
      if (event.action.kind == ActionKind::kEncodeReduce) reductions += ms;
      if (event.action.kind == ActionKind::kEncodeUpdate || event.action.kind == ActionKind::kUpdate) updates += ms;
    }
    EXPECT_NEAR(report.rows[r].time.encoder_ms, encoders, 1e-6);
    EXPECT_NEAR(report.rows[r].time.update_ms, updates, 1e-6);
    EXPECT_NEAR(reductions, encoder.reduce_ms, 1e-6);
  }
}

TEST(PlanSimulator, MemoryPartsAreThoseOfTheStages) {
  const EqualStages e{.pp = 4, .dp = 2, .microbatches = 8};
  const Plan plan = equal_stages(e);
  const PlanReport report = simulate(plan);
  PlanSimulator simulator = *PlanSimulator::create(plan);
  const PlanCosts& costs = simulator.price(plan);
  for (size_t r = 0; r < 4; ++r) {
    // 1F1B holds as many microbatches as there are ranks behind.
    EXPECT_NEAR(report.rows[r].memory.activations, static_cast<double>(4 - r) * costs.stages[r].activation_bytes, 1);
    const MemorySplit& memory = report.rows[r].memory;
    EXPECT_EQ(memory.optimizer, costs.stages[r].state.optimizer);
    EXPECT_NEAR(memory.rounding, 0.04 * (memory.activations + memory.workspace + memory.buffers), 1);
  }
  EXPECT_EQ(report.memory_limit_bytes, 1e5 * kGiB);
  EXPECT_TRUE(report.fits());
}

/// The most held at once, by listing for every action of a row everything that is alive then.
double peak_by_listing(const Schedule& schedule, size_t rank, const std::vector<StageMemory>& stages,
                       const std::vector<std::vector<EncoderMemory>>& encoders) {
  const auto& row = schedule.rows[rank];
  const auto group_of = [&](size_t encoder) {
    const auto& groups = schedule.encoders[encoder].groups;
    for (size_t g = 0; g < groups.size(); ++g) {
      if (std::find(groups[g].begin(), groups[g].end(), static_cast<int32_t>(rank)) != groups[g].end())
        return static_cast<int>(g);
    }
    return -1;
  };
  double constant = 0;
  for (size_t s = 0; s < stages.size(); ++s) {
    if (schedule.rank_of_stage[s] == static_cast<int32_t>(rank)) constant += stages[s].static_bytes;
  }
  for (size_t e = 0; e < encoders.size(); ++e) {
    if (group_of(e) < 0) continue;
    const EncoderMemory& memory = encoders[e][static_cast<size_t>(group_of(e))];
    const ScheduledEncoder& rows = schedule.encoders[e];
    constant += memory.static_bytes;
    if (!rows.is_trained || rows.recompute_from_inputs) {
      const int32_t alive = rows.live_macro_batches == 0 ? rows.num_macro_batches
                                                         : std::min(rows.live_macro_batches, rows.num_macro_batches);
      constant += alive * memory.output_bytes;
    }
  }
  double peak = constant;
  for (size_t now = 0; now < row.size(); ++now) {
    double held = constant;
    // Alive now: begun at or before, and its end not before.
    const auto ends_before = [&](ActionKind kind, const Action& of) {
      for (size_t i = 0; i < now; ++i) {
        if (row[i].kind == kind && row[i].stage == of.stage && row[i].microbatch == of.microbatch) return true;
      }
      return false;
    };
    for (size_t i = 0; i <= now; ++i) {
      const Action& a = row[i];
      if (a.kind == ActionKind::kForward) {
        const StageMemory& stage = stages[static_cast<size_t>(a.stage)];
        if (ends_before(ActionKind::kBackward, a) || ends_before(ActionKind::kBackwardWeight, a)) continue;
        held += stage.activation_bytes;
        if (ends_before(ActionKind::kBackwardInput, a)) held -= stage.freed_by_input_gradient_bytes;
      } else if (a.kind == ActionKind::kEncodeForward) {
        const auto e = static_cast<size_t>(a.stage);
        const bool keeps = schedule.encoders[e].is_trained && !schedule.encoders[e].recompute_from_inputs;
        if (keeps && !ends_before(ActionKind::kEncodeBackward, a))
          held += encoders[e][static_cast<size_t>(group_of(e))].activation_bytes;
      }
    }
    const Action& action = row[now];
    if (is_pipeline_compute(action.kind)) {
      const StageMemory& stage = stages[static_cast<size_t>(action.stage)];
      held += stage.workspace_bytes + stage.passing_bytes;
    } else if (is_encoder_compute(action.kind)) {
      const auto e = static_cast<size_t>(action.stage);
      const EncoderMemory& memory = encoders[e][static_cast<size_t>(group_of(e))];
      const bool keeps = schedule.encoders[e].is_trained && !schedule.encoders[e].recompute_from_inputs;
      held += memory.workspace_bytes + memory.passing_bytes + (keeps ? 0 : memory.activation_bytes);
    } else {
      continue;
    }
    peak = std::max(peak, held);
  }
  return peak;
}

TEST(WalkMemory, RowsWithEncodersHoldWhatAListOfEverythingAliveSays) {
  uint64_t state = 7;
  const auto random = [&] {  // whole numbers, so that sums are exact in any order
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<double>(state >> 44);
  };
  for (const char* name :
       {"qwen2-vl-7b_colocated_before", "qwen2-vl-7b_partial", "qwen2.5-omni-7b_colocated_dp8",
        "qwen2.5-vl-7b_colocated_fill", "qwen2.5-vl-7b_disjoint_stream", "qwen3-8b_zb_v_pp4", "tiny-vl_one_rank"}) {
    const Schedule schedule = *playable_schedule(shipped(name));
    for (int trial = 0; trial < 5; ++trial) {
      std::vector<StageMemory> stages;
      for (int32_t s = 0; s < schedule.num_stages(); ++s) {
        const double activations = random();
        stages.push_back({random(), activations, std::floor(activations / 3), random(), random()});
      }
      std::vector<std::vector<EncoderMemory>> encoders;
      for (const ScheduledEncoder& rows : schedule.encoders) {
        auto& groups = encoders.emplace_back();
        for (int32_t g = 0; g < rows.num_groups(); ++g)
          groups.push_back({random(), random(), random(), random(), random()});
      }
      const std::vector<PeakMemory> peaks = walk_memory(schedule, stages, encoders);
      for (size_t rank = 0; rank < schedule.rows.size(); ++rank) {
        EXPECT_EQ(peaks[rank].total_bytes(), peak_by_listing(schedule, rank, stages, encoders))
            << name << " row " << rank;
      }
    }
  }
}

TEST(PlanSimulator, TheSameSeedGivesTheSameBatchesAndAnotherOthers) {
  Plan plan = shipped("qwen2-vl-7b_inline");
  const PlanReport first = simulate(plan, 4), again = simulate(plan, 4);
  EXPECT_EQ(first.step_time_ms, again.step_time_ms);
  EXPECT_EQ(first.spread.longest_ms, again.spread.longest_ms);
  EXPECT_EQ(first.batches, 4);
  EXPECT_GT(first.spread.deviation_ms, 0);
  EXPECT_LE(first.spread.shortest_ms, first.step_time_ms);
  EXPECT_GE(first.spread.longest_ms, first.step_time_ms);
  plan.batch_seed = 1;
  EXPECT_NE(simulate(plan, 4).step_time_ms, first.step_time_ms);
}

TEST(PlanSimulator, ThePlanSaysHowManyBatchesAndTheCallerMaySayOtherwise) {
  Plan plan = shipped("qwen2-vl-7b_inline");
  EXPECT_EQ(simulate(plan, std::nullopt).batches, kDefaultBatches);
  plan.batches = 3;
  EXPECT_EQ(simulate(plan, std::nullopt).batches, 3);
  EXPECT_EQ(simulate(plan, 5).batches, 5);
  plan.batches = 0;
  const PlanReport mean = simulate(plan, std::nullopt);
  EXPECT_EQ(mean.batches, 0);
  EXPECT_EQ(mean.step_time_ms, mean.mean_batch_step_time_ms);
}

TEST(PlanSimulator, BatchesOfMorePiecesThanHaveRoomAreNotDrawn) {
  Plan plan = shipped("qwen2-vl-7b_inline");
  plan.workload.images = {Distribution::weighted({{2'000, 1}, {4'096, 1}}), Distribution::constant(64)};
  plan.workload.tokens_include_media = false;
  plan.batches = std::nullopt;
  const Result<PlanReport> asked = simulate_plan(plan, {.batches = 10'000});
  ASSERT_FALSE(asked.ok());
  EXPECT_EQ(asked.error().message().find("--batches: 10000 batches of "), 0u) << asked.error().message();
  plan.batches = 10'000;
  const Result<PlanReport> mean = simulate_plan(plan, {});
  ASSERT_TRUE(mean.ok()) << mean.error().message();
  EXPECT_EQ(mean->batches, 0);
  EXPECT_TRUE(std::any_of(mean->warnings.begin(), mean->warnings.end(), [](const std::string& warning) {
    return warning.starts_with("steps are those of the mean batch");
  }));
}

TEST(PlanSimulator, StepsOfBatchesThatAreKnownAreTakenOverAndOthersSimulated) {
  const Plan plan = shipped("qwen2-vl-7b_inline");
  const double first_ms = simulate(plan, 1).step_time_ms;
  const PlanReport both = simulate(plan, 2);
  const auto with = [&](std::vector<double> steps_ms) {
    return *simulate_plan(plan, {.batches = 2, .steps_ms = std::move(steps_ms)});
  };
  EXPECT_EQ(with({first_ms}).step_time_ms, both.step_time_ms);
  EXPECT_EQ(with({first_ms}).spread.longest_ms, both.spread.longest_ms);
  EXPECT_EQ(with({1000, 3000}).step_time_ms, 2000);
  EXPECT_EQ(with({1000, 3000, 50000}).step_time_ms, 2000) << "of more batches than the report has";
}

TEST(PlanSimulator, SamplesThatAreAllTheSameMakeNoSpread) {
  for (const char* name : {"llama3-8b_gpipe_tp2_pp2_dp2", "qwen2-vl-7b_inline", "qwen2-vl-7b_colocated_before"}) {
    Plan plan = shipped(name);
    plan.workload.tokens = Distribution::constant(2000);
    if (plan.model.find(ModuleKind::kVision) != nullptr)
      plan.workload.images = {Distribution::constant(2), Distribution::constant(1024)};
    const Schedule schedule = *playable_schedule(plan);
    PlanSimulator simulator = *PlanSimulator::create(plan);
    const double mean = simulator.step_time_ms(plan, schedule);
    DrawnSamples samples(plan);
    const SampleWork work(plan, simulator.costs());
    for (int64_t batch = 0; batch < 3; ++batch)
      EXPECT_NEAR(simulator.run_drawn(plan, schedule, work, samples.batch(batch)), mean, 1e-6 * mean) << name;
    EXPECT_EQ(simulate(plan, 8).batches, 0) << "and none are drawn";
  }
}

TEST(PlanSimulator, ManyDrawnBatchesOfAnInlineEncoderAreNearTheMeanBatch) {
  const PlanReport report = simulate(shipped("qwen2-vl-7b_inline"), 200);
  EXPECT_NEAR(report.step_time_ms / report.mean_batch_step_time_ms, 1, 0.03);
}

TEST(PlanSimulator, DealingSamplesEvenlyIsNotSlowerOnAverage) {
  Plan plan = shipped("llama3-8b_gpipe_tp2_pp2_dp2");
  plan.workload.tokens = Distribution::weighted({{200, 0.6}, {1000, 0.3}, {8000, 0.1}});
  plan.balance = Balance::kNone;
  const double none = simulate(plan, 40).step_time_ms;
  plan.balance = Balance::kLlm;
  EXPECT_LT(simulate(plan, 40).step_time_ms, none);
}

TEST(PlanSimulator, DealingSamplesEvenlyGivesEveryReplicaAlmostTheSame) {
  Plan plan =
      text_plan(gpt_model({.width = 2048, .layers = 4}), ideal_cluster(1, 8), {.dp = 8}, 500, {.microbatches = 2});
  std::vector<Distribution::Outcome> lengths;
  for (int i = 1; i <= 100; ++i) lengths.push_back({10.0 * i, 1});
  plan.workload.tokens = Distribution::weighted(std::move(lengths));
  plan.balance = Balance::kLlm;
  const PlanReport report = simulate(plan, 40);
  // The longest of eight pairs that were drawn alone is about 1.6 times the mean.
  EXPECT_LT(report.step_time_ms, 1.2 * report.mean_batch_step_time_ms);
  plan.balance = Balance::kNone;
  EXPECT_GT(simulate(plan, 40).step_time_ms, 1.4 * report.mean_batch_step_time_ms);
}

TEST(PlanSimulator, ReplicasThatGatherWeightsWaitForOneAnotherInEveryMicrobatch) {
  Plan plan =
      text_plan(gpt_model({.width = 2048, .layers = 4}), ideal_cluster(1, 8), {.dp = 8}, 500, {.microbatches = 8});
  std::vector<Distribution::Outcome> lengths;
  for (int i = 1; i <= 100; ++i) lengths.push_back({10.0 * i, 1});
  plan.workload.tokens = Distribution::weighted(std::move(lengths));
  const auto ragged = [&](int64_t zero) {
    plan.modules.back().zero = zero;
    const PlanReport report = simulate(plan, 20);
    return report.step_time_ms / report.mean_batch_step_time_ms;
  };
  // The longest of eight sums of eight lengths is about 1.3 times the mean, the sum of the longest of eight 1.8 times.
  EXPECT_GT(ragged(3), 1.2 * ragged(1));
}

TEST(PlanSimulator, EncodersThatShareTheirImagesEvenlyAreNotSlowerOnAverage) {
  Plan plan = shipped("qwen2-vl-7b_colocated_before");
  for (const int64_t samples_a_rank : {1, 4}) {
    plan.modules.front().mbs_scale = samples_a_rank;
    plan.balance = Balance::kNone;
    const double none = simulate(plan, 20).step_time_ms;
    plan.balance = Balance::kEncoder;
    const double balanced = simulate(plan, 20).step_time_ms;
    if (samples_a_rank == 1) {
      EXPECT_EQ(balanced, none) << "a sample's images stay together, so there is nothing to deal";
    } else {
      EXPECT_LT(balanced, 0.99 * none);
    }
  }
}

TEST(PlanSimulator, ALastMacroBatchThatIsShortTakesItsShare) {
  Plan plan = shipped("qwen2-vl-7b_partial");
  ModulePlan& vision = plan.modules.front();
  vision.mbs_scale = 3;  // with dp 2 six microbatches a macro batch: 32 are five and a third
  ASSERT_EQ(vision.dp * plan.schedule.microbatches, 64);
  const Schedule schedule = *playable_schedule(plan);
  ASSERT_EQ(schedule.encoders.front().num_macro_batches, 6);
  PlanSimulator simulator = *PlanSimulator::create(plan);
  const PipelineCosts costs = pipeline_costs(plan, schedule, simulator.price(plan));
  const CostTable& forward = costs.encoders.front().forward_ms;
  const BatchAssignment dealt = assign_batch(plan, {});
  EXPECT_EQ(dealt.encoders.at(ModuleKind::kVision)[0].back().size(), 2u);
  EXPECT_EQ(dealt.encoders.at(ModuleKind::kVision)[1].back().size(), 0u);
  EXPECT_NEAR(forward.at(0, 5) / forward.at(0, 4), 2.0 / 3, 1e-9) << "the first rank has what is left";
  EXPECT_EQ(forward.at(0, 0), forward.at(0, 4));
}

TEST(PlanSimulator, EncodersThatShareEachMicrobatchKeepOneMacroBatchInsteadOfAll) {
  // Encoders dp 8 beside tp 4 and dp 2: MindSpeed-MM's recommendation for Omni.
  Plan plan = shipped("qwen2.5-omni-7b_colocated_dp8");
  ASSERT_EQ(plan.llm().tp * plan.llm().pp, 4);
  ASSERT_EQ(plan.llm().pp, 1);
  plan.schedule.mbs = 4;
  plan.schedule.microbatches = plan.workload.global_batch_samples / (4 * plan.llm().dp);
  for (ModulePlan& module : plan.modules) {
    if (module.is_encoder()) set_mbs_scale(module, plan.llm().dp, module.dp);
  }
  const auto with_form = [&](EncoderForm form) {
    for (ModulePlan& module : plan.modules) {
      if (module.is_encoder()) module.form = form;
    }
    return simulate(plan);
  };
  const PlanReport before = with_form(EncoderForm::kBefore), on_demand = with_form(EncoderForm::kOnDemand);
  const Schedule schedule = *schedule_of(plan);
  for (const ScheduledEncoder& encoder : schedule.encoders)
    EXPECT_EQ(encoder.num_macro_batches, plan.schedule.microbatches) << "a macro batch is a microbatch of all ranks";
  EXPECT_LT(on_demand.rows[0].memory.activations, before.rows[0].memory.activations);
  // The same work in another order: only rows that no other macro batch hides take longer on their way.
  EXPECT_GT(on_demand.step_time_ms, 0.999 * before.step_time_ms);
  EXPECT_LT(on_demand.step_time_ms, 1.05 * before.step_time_ms);
}

TEST(PlanSimulator, AStepWaitsForTheUpdateOfEncodersOnRanksOfTheirOwn) {
  Plan plan = shipped("qwen2.5-vl-7b_disjoint_stream");
  plan.workload.frozen = {ModuleKind::kLlm};
  plan.cluster.efficiency.update = 1e-4;  // an update that nothing else can hide
  const Schedule schedule = *playable_schedule(plan);
  PlanSimulator simulator = *PlanSimulator::create(plan);
  const MeanStep step = simulator.run_mean(plan, schedule);
  const std::vector<StageCost> stages = simulator.price(plan).encoders.front().stages;
  const Schedule without_end = *lower_schedule(*schedule_of(plan));
  const ScheduleRun run = run_schedule(without_end, pipeline_costs(plan, without_end, simulator.price(plan)));
  double expected = 0;
  for (size_t stage = 0; stage < 2; ++stage) {
    const double end = run.end_ms[static_cast<size_t>(plan.llm().pp) + stage];
    expected = std::max(expected, end + stages[stage].reduce_ms + stages[stage].update_ms);
  }
  EXPECT_GT(expected, run.makespan_ms);
  EXPECT_DOUBLE_EQ(step.step_time_ms, expected);
  const PlanReport report = simulate(plan);
  EXPECT_EQ(report.rows[2].time.update_ms, stages[0].update_ms) << "and its rows show it";
  EXPECT_EQ(report.rows[3].time.update_ms, stages[1].update_ms);
}

TEST(PlanSimulator, ShippedPlansFitAndTheirUnitsAreNotUnusual) {
  for (const std::string& name : shipped_names()) {
    const PlanReport report = simulate(shipped(name));
    EXPECT_TRUE(report.warnings.empty()) << name << ": " << report.warnings.front();
    EXPECT_GT(report.model_flops_utilization, 0) << name;
    EXPECT_LT(report.model_flops_utilization, 0.8) << name;
  }
}

}  // namespace
}  // namespace weft::plan_simulator_test
