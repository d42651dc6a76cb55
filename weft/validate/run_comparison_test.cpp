#include "weft/validate/run_comparison.h"

#include <functional>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/support/cost/example_plan.h"
#include "weft/meaning/rank_row.h"
#include "weft/validate/learn_from_run.h"
#include "weft/validate/run_summary.h"

namespace weft::run_comparison_test {
namespace {

/// Two stages of a small text model, two microbatches of two samples of 64 tokens, on a device of 100 TFLOP/s.
Plan two_stages() {
  Cluster cluster = ideal_cluster(1, 2);
  cluster.device.memory_bandwidth_gb_per_s = 1e5;
  cluster.efficiency.update = 0.5;
  return text_plan(gpt_model({.width = 256, .heads = 4, .layers = 4}), cluster, {.pp = 2}, 64,
                   {.name = "1f1b", .mbs = 2, .microbatches = 2});
}

/// How much longer than predicted an action takes.
using Slowness = std::function<double(const Action&)>;

struct MadeRun {
  RunRecord record;
  PlayedStep played;  ///< what is predicted of each of its steps
};

/// Steps whose actions take their predicted time times a factor, and which take `step_factor` times the predicted step.
MadeRun made_run(const Plan& plan, int64_t steps, const Slowness& slowness, double step_factor = 1) {
  PlanSimulator simulator = *PlanSimulator::create(plan);
  const Schedule schedule = *playable_schedule(plan);
  const SampleWork work(plan, simulator.costs());
  const std::vector<SampleLoad> samples(static_cast<size_t>(plan.workload.global_batch_samples),
                                        SampleLoad{.vision = {}, .audio = {}, .llm = {{64, 1}}});
  MadeRun run;
  run.played = play_step(simulator, plan, schedule, work, samples);
  run.record.source = "steps.jsonl";
  run.record.header.device = "cpu";
  for (int64_t number = 1; number <= steps; ++number) {
    StepRecord step{.step = number,
                    .steps_before = number - 1,
                    .step_ms = step_factor * run.played.step_time_ms,
                    .ranks = {},
                    .samples = samples};
    for (int64_t rank = 0; rank < plan.world_size; ++rank) {
      RecordedRank& own = step.ranks.emplace_back();
      const auto row = static_cast<size_t>(*row_of_rank(plan, schedule, rank));
      for (const Action& action : schedule.rows[row]) {
        TimelineEvent event{.action = action};
        for (const TimelineEvent& said : run.played.timeline.ranks[static_cast<size_t>(rank)]) {
          if (said.action != action) continue;
          event = said;
          event.start_ms = step_factor * said.start_ms;
          event.end_ms = event.start_ms + slowness(action) * (said.end_ms - said.start_ms);
        }
        own.events.push_back(event);
      }
    }
    run.record.steps.push_back(std::move(step));
  }
  return run;
}

const ComparedActions& actions_of(const RunComparison& comparison, ActionKind kind) {
  for (const ComparedActions& actions : comparison.actions) {
    if (actions.kind == kind) return actions;
  }
  ADD_FAILURE() << name_of(kind) << " is not compared";
  return comparison.actions.front();
}

TEST(RunComparison, OfARunAsPredictedFindsNothing) {
  const Plan plan = two_stages();
  const MadeRun run = made_run(plan, 8, [](const Action&) { return 1.0; });
  const Result<RunComparison> comparison = compare_run(plan, run.record);
  ASSERT_TRUE(comparison.ok()) << comparison.error().message();
  EXPECT_NEAR(comparison->step_ms.error_percent(), 0, 1e-6);
  EXPECT_EQ(comparison->noise_percent, 0);
  for (const ComparedActions& actions : comparison->actions) {
    if (!actions.is_compute) continue;
    EXPECT_NEAR(actions.ms.error_percent(), 0, 1e-6) << name_of(actions.kind);
  }
  for (const ComparedTerm& term : comparison->terms) EXPECT_NEAR(term.ms.difference(), 0, 1e-9) << term.name;
  for (const ComparedRank& rank : comparison->ranks) EXPECT_NEAR(rank.busy_ms.error_percent(), 0, 1e-6);
  ASSERT_EQ(comparison->steps.size(), 8u);
  EXPECT_TRUE(comparison->steps[0].is_warm_up);
  EXPECT_TRUE(comparison->steps[1].is_warm_up);
  EXPECT_FALSE(comparison->steps[2].is_warm_up);
}

TEST(RunComparison, NamesTheTermThatIsMostWrongAndByHowMuch) {
  const Plan plan = two_stages();
  // Forwards take twice as long, backwards a fifth longer, and the step with them: 2 microbatches a rank.
  const MadeRun run = made_run(
      plan, 8,
      [](const Action& action) {
        return action.kind == ActionKind::kForward ? 2.0 : action.kind == ActionKind::kBackward ? 1.2 : 1.0;
      },
      1.5);
  const RunComparison comparison = *compare_run(plan, run.record);
  EXPECT_NEAR(comparison.step_ms.error_percent(), 100 * (1 / 1.5 - 1), 1e-6);
  const ComparedActions& forwards = actions_of(comparison, ActionKind::kForward);
  EXPECT_EQ(forwards.count, 4);
  EXPECT_NEAR(forwards.ms.error_percent(), -50, 1e-6);
  EXPECT_NEAR(actions_of(comparison, ActionKind::kBackward).ms.error_percent(), 100 * (1 / 1.2 - 1), 1e-6);
  EXPECT_NEAR(actions_of(comparison, ActionKind::kUpdate).ms.error_percent(), 0, 1e-6);
  const ComparedTerm& first = comparison.terms.front();
  EXPECT_EQ(first.name, "forwards");
  // Of the mean rank: its two forwards.
  EXPECT_NEAR(first.ms.predicted, 2 * forwards.ms.predicted, 1e-9);
  EXPECT_NEAR(first.ms.difference(), -2 * forwards.ms.predicted, 1e-9);
  EXPECT_EQ(comparison.most_wrong().name, "forwards");
  EXPECT_NE(comparison.most_wrong().mend.find("weft profile"), std::string::npos);
  // All terms are the step.
  Compared sum;
  for (const ComparedTerm& term : comparison.terms) {
    sum.predicted += term.ms.predicted;
    sum.measured += term.ms.measured;
  }
  EXPECT_NEAR(sum.predicted, comparison.step_ms.predicted, 1e-6);
  EXPECT_NEAR(sum.measured, comparison.step_ms.measured, 1e-6);
}

TEST(RunComparison, TheMedianStepDecidesAndNoiseIsGiven) {
  const Plan plan = two_stages();
  MadeRun run = made_run(plan, 9, [](const Action&) { return 1.0; });
  // Seven steps count; one was held up by something else, and one was quick.
  run.record.steps[3].step_ms *= 5;
  run.record.steps[5].step_ms *= 0.9;
  const RunComparison comparison = *compare_run(plan, run.record);
  EXPECT_NEAR(comparison.step_ms.error_percent(), 0, 1e-6);
  EXPECT_GT(comparison.noise_percent, 0);
  EXPECT_NEAR(comparison.steps[3].ms.error_percent(), -80, 1e-6);
}

TEST(RunComparison, MemoryIsHeldAgainstThePlanWhereLengthsWereNotWritten) {
  const Plan plan = two_stages();
  MadeRun run = made_run(plan, 4, [](const Action&) { return 1.0; });
  for (StepRecord& step : run.record.steps) step.ranks[1].peak_bytes = 1e12;
  const RunComparison comparison = *compare_run(plan, run.record);
  EXPECT_EQ(comparison.memory_from, "a high load of the plan");
  ASSERT_NE(comparison.fullest(), nullptr);
  EXPECT_EQ(comparison.fullest()->rank, 1);
  EXPECT_EQ(comparison.fullest()->memory_bytes->measured, 1e12);
  EXPECT_TRUE(comparison.memory_is_exceeded);
  EXPECT_FALSE(comparison.ranks[0].memory_bytes);  // nothing was measured there
}

TEST(RunComparison, LengthsThatDoNotFitAreToldAndNotUsed) {
  const Plan plan = two_stages();
  MadeRun run = made_run(plan, 8, [](const Action&) { return 1.0; });
  const auto compared = [&](const std::vector<int64_t>& lengths) {
    RecordedLoad load{.assignment = {.llm = {{{0, 1}, {2, 3}}}, .encoders = {}}};
    load.llm = {{{.samples = {64, 64}}, {.samples = lengths}}};
    for (StepRecord& step : run.record.steps) step.load = load;
    return *compare_run(plan, run.record);
  };
  const RunComparison fitting = compared({64, 64});
  EXPECT_EQ(fitting.memory_from, "the step's own lengths");
  EXPECT_TRUE(fitting.warnings.empty());
  const std::string start = "memory is not predicted from the steps' own lengths: of step 1 ";
  for (const auto& [lengths, problem] :
       {std::pair{std::vector<int64_t>{64, 1 << 30}, "a microbatch has 1073741888 tokens, but its samples have 128"},
        std::pair{std::vector<int64_t>{64}, "a microbatch has other samples than were dealt to it"}}) {
    const RunComparison comparison = compared(lengths);
    EXPECT_EQ(comparison.memory_from, "a high load of the plan");
    EXPECT_EQ(comparison.warnings, std::vector<std::string>{start + problem});
  }
}

TEST(RunComparison, ARecordOfAnotherPlanIsRefused) {
  const Plan plan = two_stages();
  MadeRun run = made_run(plan, 3, [](const Action&) { return 1.0; });
  const auto problem = [&](const auto& change) {
    RunRecord record = run.record;
    change(record.steps[1]);
    const Result<RunComparison> comparison = compare_run(plan, record);
    return comparison.ok() ? "" : comparison.error().message();
  };
  EXPECT_NE(problem([](StepRecord& step) { step.ranks.pop_back(); }).find("has 1 rank, the plan 2"), std::string::npos);
  EXPECT_NE(problem([](StepRecord& step) { step.samples.pop_back(); }).find("has 3 samples"), std::string::npos);
  EXPECT_NE(problem([](StepRecord& step) { step.samples[0].llm.clear(); }).find("without tokens"), std::string::npos);
  EXPECT_NE(problem([](StepRecord& step) { step.samples[0].vision = {{4, 1}}; }).find("no encoder"), std::string::npos);
  EXPECT_NE(problem([](StepRecord& step) { step.ranks[1].events.pop_back(); }).find("rank 1 did other actions"),
            std::string::npos);
  RunRecord named = run.record;
  named.header.plan = work_hash(plan);
  EXPECT_TRUE(compare_run(plan, named).ok());
  named.header.plan = "x";
  EXPECT_EQ(
      compare_run(plan, named).error().message(),
      fmt::format("steps.jsonl: plan: is 'x', but this plan has {}. The record is of another plan, or was changed. "
                  "Give the plan.json of its run folder.",
                  work_hash(plan)));
  Plan other = plan;
  other.schedule.microbatches = 1;
  other.schedule.mbs = 4;
  const auto error = check_same_run(other, plan, "runs/first");
  ASSERT_TRUE(error);
  EXPECT_NE(error->message().find("is of another plan"), std::string::npos);
  EXPECT_NE(error->message().find("Give --plan runs/first/plan.json"), std::string::npos);
  Plan elsewhere = plan;
  elsewhere.cluster.name = "measured";
  EXPECT_FALSE(check_same_run(elsewhere, plan, "runs/first"));
}

TEST(LearnFromRun, FindsTheFactorsThatARunWasMadeWith) {
  const Plan plan = two_stages();
  const MadeRun run = made_run(plan, 8, [](const Action& action) {
    switch (action.kind) {
      case ActionKind::kForward:
        return 1.5;
      case ActionKind::kBackward:
        return 0.8;
      case ActionKind::kUpdate:
        return 3.0;
      default:
        return 1.0;
    }
  });
  const Profile formulas = *profile_of_formulas(plan);
  const Result<LearnedProfile> learned = learn_from_run(plan, run.record);
  ASSERT_TRUE(learned.ok()) << learned.error().message();
  EXPECT_NEAR(learned->modules.at(ModuleKind::kLlm).forward, 1.5, 0.02);
  EXPECT_NEAR(learned->modules.at(ModuleKind::kLlm).backward, 0.8, 0.02);
  ASSERT_EQ(learned->profile.blocks.size(), formulas.blocks.size());
  for (size_t i = 0; i < formulas.blocks.size(); ++i) {
    EXPECT_NEAR(learned->profile.blocks[i].forward_ms, 1.5 * formulas.blocks[i].forward_ms,
                0.05 * formulas.blocks[i].forward_ms);
  }
  const RunComparison after = *compare_run(plan, run.record, &learned->profile);
  EXPECT_NEAR(actions_of(after, ActionKind::kForward).ms.error_percent(), 0, 2);
  EXPECT_NEAR(actions_of(after, ActionKind::kBackward).ms.error_percent(), 0, 2);
  // What it learned is read back as it was written.
  const Result<Profile> again = read_profile({.source = "again", .root = to_json(learned->profile)});
  ASSERT_TRUE(again.ok()) << again.error().message();
}

TEST(RunSummary, ErrorsOfManyRunsByModelAndDevice) {
  const std::vector<RunSummary> runs = {
      {.run = "a",
       .model = "x",
       .device = "cpu",
       .step_time_error_percent = 4,
       .noise_percent = 1,
       .memory_error_percent = 2},
      {.run = "b", .model = "x", .device = "gpu", .step_time_error_percent = -10, .noise_percent = 3},
      {.run = "c",
       .model = "y",
       .device = "cpu",
       .step_time_error_percent = 1,
       .noise_percent = 2,
       .memory_error_percent = -3}};
  const RunErrors steps = step_errors(runs);
  EXPECT_EQ(steps.runs, 3);
  EXPECT_DOUBLE_EQ(steps.mean_percent, 5);
  EXPECT_DOUBLE_EQ(steps.worst_percent, -10);
  EXPECT_EQ(steps.worst_run, "b");
  EXPECT_DOUBLE_EQ(steps.mean_noise_percent, 2);
  const RunErrors memory = memory_errors(runs);
  EXPECT_EQ(memory.runs, 2);
  EXPECT_DOUBLE_EQ(memory.mean_percent, 2.5);
  EXPECT_DOUBLE_EQ(memory.worst_percent, -3);
  EXPECT_EQ(grouped_by(runs, &RunSummary::model).at("x").size(), 2u);
  EXPECT_DOUBLE_EQ(step_errors(grouped_by(runs, &RunSummary::device).at("cpu")).mean_percent, 2.5);
}

}  // namespace
}  // namespace weft::run_comparison_test
