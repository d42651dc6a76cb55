#include "weft/search/target_space.h"

#include <gtest/gtest.h>

#include "tests/support/draws.h"
#include "tests/support/search/real_problem.h"
#include "weft/exchange/target_limits.h"
#include "weft/meaning/check.h"
#include "weft/search/enumerate.h"
#include "weft/search/plan_advice.h"
#include "weft/simulate/plan_simulator.h"

namespace weft::target_space_test {
namespace {

constexpr Target kTargets[] = {Target::kMegatron, Target::kMindspeedMm, Target::kMindformers, Target::kMindspeedRl,
                               Target::kTorchtitan};

TEST(TargetSpace, WhatIsFoundForASystemIsExportedToItAndNoFasterThanTheWholeSpace) {
  int num_exported = 0;
  for (const auto& [model, cluster, nodes, workload, batch] : {std::tuple{"llama3-8b", "dgx_h100", 1, "text_4k", 128},
                                                               {"llama3-70b", "dgx_a100_80g", 8, "text_4k", 128},
                                                               {"qwen3-30b-a3b", "dgx_h100", 2, "text_4k", 128},
                                                               {"qwen2-vl-7b", "dgx_h100", 1, "vl_sft", 64},
                                                               {"qwen2.5-vl-32b", "ascend_910b_16", 2, "vl_sft", 64},
                                                               {"qwen2.5-omni-7b", "hgx_h200", 1, "omni_short", 64}}) {
    if (kIsSanitized && nodes > 1) continue;
    const PlanProblem problem = real_problem(model, cluster, nodes, workload, batch);
    const PlanSearchOptions options{.time_limit_s = 20, .within = 0.02, .memory_margin = 0.08};
    const PlanSearchResult whole =
        *search_plans(problem.model, problem.cluster, problem.workload, problem.space, options);
    for (const Target target : kTargets) {
      const std::string where = std::string(model) + " for " + name_of(target);
      const Result<PlanSpace> space = space_for(target, problem.space, problem.model);
      if (!space) {
        EXPECT_GT(problem.model.modules.size(), 1u) << where;
        EXPECT_NE(target, Target::kMindspeedMm) << where << ": " << space.error().message();
        continue;
      }
      PlanSearchResult result = *search_plans(problem.model, problem.cluster, problem.workload, *space, options);
      ASSERT_FALSE(result.best.empty()) << where;
      const SearchCounts& c = result.counts;
      EXPECT_EQ(c.considered, c.slower_by_work + c.slower_by_schedule + c.slower_by_placement + c.over_memory +
                                  c.not_expressed + c.evaluated + c.left);
      FoundPlan& chosen = *result.chosen;
      chosen.plan.predicted = prediction_of(*simulate_plan(chosen.plan));
      const auto files = export_plan(chosen.plan, target);
      EXPECT_TRUE(files.ok()) << where << ": " << files.error().message() << files.error().details;
      EXPECT_TRUE(can_express(chosen.plan, target)) << where;
      if (whole.is_optimal) {
        EXPECT_GE(result.best.front().step_time_ms, whole.best.front().step_time_ms * (1 - 1e-9)) << where;
      }
      ++num_exported;
    }
  }
  EXPECT_GE(num_exported, kIsSanitized ? 4 : 12);
}

/// Every candidate of a small space as a plan: what a system can express is in the space for it, and nothing that the
/// whole space has is lost but what it cannot express.
TEST(TargetSpace, HoldsEveryCandidateThatTheSystemCanExpress) {
  for (const char* model : {"tiny-vl", "llama3-8b"}) {
    PlanProblem problem = real_problem(model, "dgx_h100", 2, "vl_sft", 16);
    problem.cluster.devices_per_node = 2;
    problem.space.schedules.push_back(ScheduleName::kGpipe);
    Plan plan = plan_without_settings(problem.model, problem.cluster, problem.workload);
    for (const Target target : kTargets) {
      const Result<PlanSpace> space = space_for(target, problem.space, problem.model);
      std::vector<Candidate> narrowed;
      if (space) {
        for (const Candidate& frame : enumerate_frames(plan, *space)) {
          for (const Candidate& c : enumerate_candidates(frame, choices_of(frame, plan, *space))) narrowed.push_back(c);
        }
      }
      size_t num_expressed = 0, num_found = 0;
      for (const Candidate& frame : enumerate_frames(plan, problem.space)) {
        for (const Candidate& c : enumerate_candidates(frame, choices_of(frame, plan, problem.space))) {
          fill_plan(c, plan);
          if (!can_express(plan, target)) continue;
          ++num_expressed;
          num_found += std::find(narrowed.begin(), narrowed.end(), c) != narrowed.end() ? 1 : 0;
        }
      }
      EXPECT_EQ(num_found, num_expressed) << model << " for " << name_of(target);
      EXPECT_EQ(num_expressed > 0, space.ok()) << model << " for " << name_of(target);
    }
  }
}

// What MindSpeed-MM recommends for Omni: encoders with dp 8, before each microbatch, beside an llm with tp 4 and dp 2.
TEST(TargetSpace, HasEncodersThatShareOutEachMicrobatch) {
  PlanProblem problem = real_problem("qwen2.5-omni-7b", "hgx_h200", 1, "omni_short", 64);
  problem.space.tp = {.values = {4}};
  problem.space.pp = {.values = {1}};
  problem.space.cp = {.values = {1}};
  const PlanSpace space = *space_for(Target::kMindspeedMm, problem.space, problem.model);
  Plan plan = plan_without_settings(problem.model, problem.cluster, problem.workload);
  size_t num_shared = 0;
  for (const Candidate& frame : enumerate_frames(plan, space)) {
    if (frame.mbs != 4) continue;
    for (const Candidate& c : enumerate_candidates(frame, choices_of(frame, plan, space))) {
      const bool shares = std::all_of(c.encoders.begin(), c.encoders.end(), [](const EncoderChoice& e) {
        return e.form == EncoderForm::kOnDemand && e.tp == 1 && e.mbs_scale == 1 && e.mbs_parts == 4;
      });
      if (!shares || c.zero != 1) continue;
      fill_plan(c, plan);
      EXPECT_TRUE(can_express(plan, Target::kMindspeedMm)) << c.text(plan);
      EXPECT_TRUE(check_plan(plan).empty()) << c.text(plan);
      ++num_shared;
    }
  }
  EXPECT_GT(num_shared, 0u);
}

TEST(TargetSpace, RefusesWhatLeavesNothing) {
  const PlanProblem problem = real_problem("qwen2-vl-7b", "dgx_h100", 1, "vl_sft", 64);
  const auto message = [&](Target target, const PlanSpace& space) {
    const Result<PlanSpace> narrowed = space_for(target, space, problem.model);
    return narrowed ? std::string("nothing is wrong") : narrowed.error().message();
  };
  EXPECT_EQ(message(Target::kMegatron, {}),
            "--for: megatron cannot express qwen2-vl-7b: its settings are for one chain of layers, without vision. Use "
            "mindspeed-mm, which has settings for encoders.");
  PlanSpace space;
  space.schedules = {ScheduleName::kZbH1};
  EXPECT_EQ(message(Target::kMindspeedMm, space),
            "--for: mindspeed-mm runs none of the schedules that the search file allows. Allow 1f1b in it, or leave "
            "schedule out.");
  space = {};
  space.balances = {Balance::kBoth};
  EXPECT_EQ(message(Target::kMindspeedMm, space),
            "--for: mindspeed-mm has no setting that reassigns samples, which the search file asks for. Allow none "
            "under balance in it, or leave balance out.");
  space = {};
  space.encoders[ModuleKind::kVision] = {.allows_inline = false, .allows_colocated = false, .allows_partial = false};
  EXPECT_EQ(message(Target::kMindspeedMm, space),
            "--for: mindspeed-mm has no setting for how the search file places vision. Allow the placement inline or "
            "colocated.");
}

}  // namespace
}  // namespace weft::target_space_test
