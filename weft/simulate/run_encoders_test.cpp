#include <algorithm>
#include <map>
#include <random>
#include <tuple>

#include <gtest/gtest.h>

#include "tests/support/schedule/example_encoders.h"
#include "weft/schedule/lowering.h"
#include "weft/schedule/step_end.h"
#include "weft/schedule/validate.h"
#include "weft/simulate/run_schedule.h"

namespace weft {
namespace {

/// The simulator's costs for the times that encoders were placed with.
PipelineCosts costs_of(const Schedule& llm, const std::vector<EncoderPlacement>& encoders,
                       const StageDurations& durations) {
  const auto table = [&](const std::vector<double>& values) {
    return CostTable(llm.num_stages(), llm.num_microbatches, values);
  };
  PipelineCosts costs{.forward_ms = table(durations.forward_ms),
                      .backward_input_ms = table(durations.backward_input_ms),
                      .backward_weight_ms = table(durations.backward_weight_ms),
                      .p2p_ms = CostTable(0.0)};
  for (const EncoderPlacement& encoder : encoders) {
    const auto per_group = [&](const std::vector<double>& values) {
      return CostTable(encoder.rows.num_groups(), encoder.rows.num_macro_batches, values);
    };
    costs.encoders.push_back(
        {.forward_ms = per_group(encoder.forward_ms), .backward_ms = per_group(encoder.backward_ms)});
  }
  return costs;
}

ScheduleRun run(const Schedule& llm, const std::vector<EncoderPlacement>& encoders, const StageDurations& durations,
                Timeline* timeline = nullptr) {
  return run_schedule(*lower_schedule(*place_encoders(llm, encoders, durations)), costs_of(llm, encoders, durations),
                      timeline);
}

double run_in_form(const Schedule& llm, EncoderPlacement encoder, EncoderForm form, const StageDurations& durations) {
  encoder.form = form;
  return run(llm, {encoder}, durations).makespan_ms;
}

double alone_ms(const Schedule& llm, const StageDurations& durations) {
  return run_schedule(*lower_schedule(llm), costs_of(llm, {}, durations)).makespan_ms;
}

TEST(RunEncoders, BeforeTakesTheSumOfEncoderAndPipeline) {
  const Schedule llm = pipeline(ScheduleName::k1f1b, 4, 1, 8);
  const StageDurations durations = uniform(4, 1, 1, 1);
  const EncoderPlacement encoder =
      placement(EncoderForm::kBefore, encoder_rows({.microbatches = 8, .mbs_scale = 2}, groups_of(0, 4, 1)), 0.5, 1.25);
  // The first rank ends last and then has its backwards to do.
  EXPECT_DOUBLE_EQ(run(llm, {encoder}, durations).makespan_ms, 4 * 0.5 + 3.0 * (8 + 3) + 4 * 1.25);
}

TEST(RunEncoders, RecomputingFromInputsChargesTheForwardAgainAndKeepsNothing) {
  const Schedule llm = pipeline(ScheduleName::k1f1b, 2, 1, 4);
  const StageDurations durations = uniform(2, 1, 1, 1);
  EncoderPlacement encoder =
      placement(EncoderForm::kBefore, encoder_rows({.microbatches = 4}, groups_of(0, 2, 1)), 0.5, 1);
  const ScheduleRun kept = run(llm, {encoder}, durations);
  EXPECT_DOUBLE_EQ(kept.encoders[0].busy_ms, 2 * 4 * 1.5);
  EXPECT_EQ(kept.encoders[0].peak_live_macro_batches, 4);
  encoder.rows.recompute_from_inputs = true;
  const ScheduleRun again = run(llm, {encoder}, durations);
  EXPECT_DOUBLE_EQ(again.encoders[0].busy_ms, 2 * 4 * 2.0);
  EXPECT_DOUBLE_EQ(again.makespan_ms, kept.makespan_ms + 4 * 0.5);
}

TEST(RunEncoders, BridgesDelayBothWaysAndKeepNobodyBusy) {
  const Schedule llm = pipeline(ScheduleName::k1f1b, 1, 1, 1);
  const StageDurations durations = uniform(1, 1, 1, 1);
  ScheduledEncoder rows = encoder_rows({.microbatches = 1}, {{1}, {2}});
  rows.num_stages = 2;
  const std::vector<EncoderPlacement> encoders = {placement(EncoderForm::kStream, rows, 2, 3)};
  PipelineCosts costs = costs_of(llm, encoders, durations);
  costs.encoders[0].bridge_ms = 0.5;
  costs.encoders[0].p2p_ms = CostTable(0.25);
  const ScheduleRun result = run_schedule(*lower_schedule(*place_encoders(llm, encoders, durations)), costs);
  EXPECT_DOUBLE_EQ(result.makespan_ms, 2 + 0.25 + 2 + 0.5 + 3 + 0.5 + 3 + 0.25 + 3);
  EXPECT_DOUBLE_EQ(result.encoders[0].busy_ms, 10);
}

TEST(RunEncoders, TransfersBetweenAnEncodersStagesKeepTheirChannelAndAreInTheTimeline) {
  // Two stages that take 1 ms for each of three macro batches; a macro batch keeps the channel for 1.5 ms.
  const Schedule llm = pipeline(ScheduleName::kGpipe, 1, 1, 3);
  const StageDurations durations = uniform(1, 1, 1, 1);
  ScheduledEncoder rows = encoder_rows({.microbatches = 3}, {{1}, {2}});
  rows.num_stages = 2;
  rows.is_trained = false;
  const std::vector<EncoderPlacement> encoders = {placement(EncoderForm::kStream, rows, 1, 1)};
  PipelineCosts costs = costs_of(llm, encoders, durations);
  costs.encoders[0].p2p_busy_ms = CostTable(1.5);
  costs.encoders[0].p2p_ms = CostTable(0.25);
  const Schedule lowered = *lower_schedule(*place_encoders(llm, encoders, durations));
  EXPECT_FALSE(find_problem(lowered));
  Timeline timeline;
  run_schedule(lowered, costs, &timeline);
  std::vector<double> sent, encoded;
  for (const TimelineEvent& event : timeline.ranks[1]) {
    if (event.action.kind == ActionKind::kSendEncoded) sent.insert(sent.end(), {event.start_ms, event.end_ms});
  }
  for (const TimelineEvent& event : timeline.ranks[2]) {
    if (event.action.kind == ActionKind::kEncodeForward) encoded.push_back(event.start_ms);
  }
  EXPECT_EQ(sent, (std::vector<double>{1, 2.75, 2.5, 4.25, 4, 5.75}));
  EXPECT_EQ(encoded, (std::vector<double>{2.75, 4.25, 5.75}));
}

TEST(RunEncoders, FillHidesEverythingThatTheBubblesCanHold) {
  // As many microbatches as ranks: every rank idles between its forwards and its backwards, or around them.
  const int64_t p = 4, m = 4;
  const Schedule llm = pipeline(ScheduleName::k1f1b, p, 1, m);
  const StageDurations durations = uniform(4, 10, 10, 10);
  const EncoderPlacement encoder =
      placement(EncoderForm::kFill, encoder_rows({.microbatches = m}, groups_of(0, 4, 1)), 1, 2);
  // Only the first forward, before anything can start, and the last backward, after everything, stay visible.
  EXPECT_DOUBLE_EQ(run_in_form(llm, encoder, EncoderForm::kFill, durations), alone_ms(llm, durations) + 1 + 2);
  EXPECT_DOUBLE_EQ(run_in_form(llm, encoder, EncoderForm::kBefore, durations), alone_ms(llm, durations) + 4 * (1 + 2));
}

TEST(RunEncoders, WithoutBubblesFillTakesTheSum) {
  const Schedule llm = pipeline(ScheduleName::k1f1b, 1, 1, 6);
  const StageDurations durations = uniform(1, 1, 1, 1);
  EncoderPlacement encoder =
      placement(EncoderForm::kFill, encoder_rows({.microbatches = 6, .mbs_scale = 2}, {{0}}), 2, 3);
  EXPECT_DOUBLE_EQ(run(llm, {encoder}, durations).makespan_ms, 6 * 3 + 3 * 5);
  encoder.rows.live_macro_batches = 1;
  EXPECT_DOUBLE_EQ(run(llm, {encoder}, durations).makespan_ms, 6 * 3 + 3 * 5);
}

struct RandomCase {
  Schedule llm;
  StageDurations durations;
  EncoderPlacement encoder;
  std::string text;
};

RandomCase random_case(std::mt19937_64& random) {
  const auto pick = [&](int32_t low, int32_t high) {
    return low + static_cast<int32_t>(random() % static_cast<uint64_t>(high - low + 1));
  };
  constexpr std::pair<ScheduleName, int> kNames[] = {{ScheduleName::kGpipe, 1},
                                                     {ScheduleName::k1f1b, 1},
                                                     {ScheduleName::kInterleaved1f1b, 2},
                                                     {ScheduleName::kZbH1, 1},
                                                     {ScheduleName::kZbV, 2}};
  const auto [name, vpp] = kNames[static_cast<size_t>(pick(0, 4))];
  const int32_t pp = pick(1, 8), m = pick(1, 24);
  Schedule llm = pipeline(name, pp, vpp, m);
  std::uniform_real_distribution<double> time(0.2, 2.0);
  const auto times = [&] {
    std::vector<double> values(static_cast<size_t>(llm.num_stages()));
    for (double& value : values) value = time(random);
    return values;
  };
  StageDurations durations{times(), times(), times()};
  const int32_t first = pick(0, 1) * pick(0, pp - 1);
  ScheduledEncoder rows =
      encoder_rows({.microbatches = m, .mbs_scale = pick(1, 3), .dp_encoder = pick(1, 3), .dp_llm = pick(1, 2)},
                   groups_of(first, pp - first, pick(1, pp)));
  rows.is_trained = pick(0, 2) > 0;
  rows.recompute_from_inputs = rows.is_trained && pick(0, 3) == 0;
  EncoderPlacement encoder{EncoderForm::kFill, rows, {}, {}};
  for (size_t g = 0; g < rows.groups.size(); ++g) {
    encoder.forward_ms.push_back(time(random));
    encoder.backward_ms.push_back(2 * time(random));
  }
  // Behind inline encoders the llm begins in any stage.
  if (pick(0, 2) == 0) llm.entry_stage = pick(0, llm.num_stages() - 1);
  const std::string text = name_of(name) + " pp " + std::to_string(pp) + " m " + std::to_string(m) + " entry " +
                           std::to_string(llm.entry_stage);
  return {std::move(llm), durations, encoder, text};
}

TEST(RunEncoders, FillIsNeverWorseThanBeforeNorBetterThanItsBounds) {
  std::mt19937_64 random(3);
  for (int trial = 0; trial < 300; ++trial) {
    const RandomCase c = random_case(random);
    const ScheduleRun filled = run(c.llm, {c.encoder}, c.durations);
    EXPECT_LE(filled.makespan_ms, run_in_form(c.llm, c.encoder, EncoderForm::kBefore, c.durations) + 1e-9) << c.text;
    EXPECT_GE(filled.makespan_ms, alone_ms(c.llm, c.durations) - 1e-9) << c.text;
    EXPECT_GE(filled.makespan_ms, *std::max_element(filled.busy_ms.begin(), filled.busy_ms.end()) - 1e-9) << c.text;
  }
}

/// Most macro batches alive at once on a rank, counted in a timeline.
int32_t most_alive(const Timeline& timeline, const ScheduledEncoder& encoder, const Schedule& llm) {
  std::map<int32_t, double> last_read_ms;
  for (const TimelineEvent& event : timeline.ranks[static_cast<size_t>(llm.entry_rank())]) {
    if (event.action.kind != ActionKind::kForward || event.action.stage != llm.entry_stage) continue;
    const auto m = static_cast<size_t>(event.action.microbatch);
    for (int32_t k = encoder.first_macro[m]; k < encoder.end_macro[m]; ++k) last_read_ms[k] = event.end_ms;
  }
  int32_t most = 0;
  for (const auto& events : timeline.ranks) {
    std::vector<std::pair<double, int32_t>> changes;
    for (const TimelineEvent& event : events) {
      if (event.action.kind == ActionKind::kEncodeForward) {
        changes.push_back({event.end_ms, 1});
        if (!encoder.keeps_activations())
          changes.push_back({std::max(event.end_ms, last_read_ms[event.action.microbatch]), -1});
      }
      if (event.action.kind == ActionKind::kEncodeBackward && encoder.keeps_activations())
        changes.push_back({event.end_ms, -1});
    }
    std::sort(changes.begin(), changes.end());
    int32_t alive = 0;
    for (const auto& [time, change] : changes) most = std::max(most, alive += change);
  }
  return most;
}

TEST(RunEncoders, FillKeepsNoMoreAliveThanItMay) {
  std::mt19937_64 random(8);
  int num_bound = 0;
  for (int trial = 0; trial < 300; ++trial) {
    RandomCase c = random_case(random);
    const int32_t limit = least_live_macro_batches(c.llm, c.encoder.rows) + static_cast<int32_t>(random() % 3);
    c.encoder.rows.live_macro_batches = limit;
    Timeline timeline;
    const ScheduleRun result = run(c.llm, {c.encoder}, c.durations, &timeline);
    const int32_t alive = most_alive(timeline, c.encoder.rows, c.llm);
    EXPECT_LE(alive, limit) << c.text;
    EXPECT_EQ(alive, result.encoders[0].peak_live_macro_batches) << c.text;
    num_bound += limit < c.encoder.rows.num_macro_batches && alive == limit ? 1 : 0;
  }
  EXPECT_GT(num_bound, 50) << "the bound must matter in many cases for this to test anything";
}

/// Start times as the least fixed point of what every action waits for, over compute actions alone.
double makespan_by_relaxation(const Schedule& schedule, const PipelineCosts& costs) {
  using Key = std::tuple<ActionKind, int32_t, int32_t, int32_t>;  // kind, stage or encoder, microbatch, group or −1
  std::map<Key, double> end;
  const auto group_of = [&](const Action& a, size_t rank) {
    if (!is_encoder(a.kind)) return -1;
    const auto& groups = schedule.encoders[static_cast<size_t>(a.stage)].groups;
    const auto holds = [&](const auto& group) {
      return std::find(group.begin(), group.end(), static_cast<int32_t>(rank)) != group.end();
    };
    return static_cast<int32_t>(std::find_if(groups.begin(), groups.end(), holds) - groups.begin());
  };
  const auto gradient_end = [&](int32_t stage, int32_t m) {
    return std::max(end[{ActionKind::kBackward, stage, m, -1}], end[{ActionKind::kBackwardInput, stage, m, -1}]);
  };
  const auto needs = [](const ScheduledEncoder& e, int32_t m, int32_t k) {
    return e.first_macro[static_cast<size_t>(m)] <= k && k < e.end_macro[static_cast<size_t>(m)];
  };
  const auto input = [&](const Action& a, int32_t group, size_t rank) {
    double at = 0;
    const auto p2p = [&](int32_t from) {
      return schedule.rank_of_stage[static_cast<size_t>(from)] == static_cast<int32_t>(rank)
                 ? 0.0
                 : costs.p2p_ms.at(from, a.microbatch);
    };
    if (a.kind == ActionKind::kForward && a.stage > 0)
      at = end[{a.kind, a.stage - 1, a.microbatch, -1}] + p2p(a.stage - 1);
    if (a.kind == ActionKind::kForward && a.stage == schedule.entry_stage) {
      for (size_t e = 0; e < schedule.encoders.size(); ++e) {
        const ScheduledEncoder& encoder = schedule.encoders[e];
        for (int32_t k = 0; k < encoder.num_macro_batches; ++k) {
          for (int32_t g = 0; needs(encoder, a.microbatch, k) && g < encoder.num_groups(); ++g) {
            if (!encoder.is_last_stage(g)) continue;
            at = std::max(
                at, end[{ActionKind::kEncodeForward, static_cast<int32_t>(e), k, g}] + costs.encoders[e].bridge_ms);
          }
        }
      }
    }
    if (makes_gradient(a.kind) && a.stage + 1 < schedule.num_stages())
      at = gradient_end(a.stage + 1, a.microbatch) + p2p(a.stage + 1);
    if (!is_encoder(a.kind)) return at;
    const ScheduledEncoder& encoder = schedule.encoders[static_cast<size_t>(a.stage)];
    const EncoderCosts& of = costs.encoders[static_cast<size_t>(a.stage)];
    if (a.kind == ActionKind::kEncodeForward) {
      if (!encoder.is_first_stage(group)) at = end[{a.kind, a.stage, a.microbatch, group - 1}] + of.p2p_ms.at(0, 0);
      // Macro batches run in order, so with a bound of n the one n before this one must have been read.
      const int32_t before = a.microbatch - encoder.live_macro_batches;
      for (int32_t m = 0; encoder.live_macro_batches > 0 && !encoder.keeps_activations() && before >= 0 &&
                          m < schedule.num_microbatches;
           ++m) {
        if (needs(encoder, m, before)) at = std::max(at, end[{ActionKind::kForward, schedule.entry_stage, m, -1}]);
      }
      return at;
    }
    if (!encoder.is_last_stage(group)) return end[{a.kind, a.stage, a.microbatch, group + 1}] + of.p2p_ms.at(0, 0);
    for (int32_t m = 0; m < schedule.num_microbatches; ++m) {
      if (needs(encoder, m, a.microbatch)) at = std::max(at, gradient_end(schedule.entry_stage, m) + of.bridge_ms);
    }
    return at;
  };
  const auto duration = [&](const Action& a, int32_t group) {
    switch (a.kind) {
      case ActionKind::kForward:
        return costs.forward_ms.at(a.stage, a.microbatch);
      case ActionKind::kBackward:
        return costs.backward_input_ms.at(a.stage, a.microbatch) + costs.backward_weight_ms.at(a.stage, a.microbatch);
      case ActionKind::kBackwardInput:
        return costs.backward_input_ms.at(a.stage, a.microbatch);
      case ActionKind::kBackwardWeight:
        return costs.backward_weight_ms.at(a.stage, a.microbatch);
      default:
        break;
    }
    const EncoderCosts& of = costs.encoders[static_cast<size_t>(a.stage)];
    const bool again =
        schedule.encoders[static_cast<size_t>(a.stage)].recompute_from_inputs || a.kind == ActionKind::kEncodeForward;
    return (a.kind == ActionKind::kEncodeBackward ? of.backward_ms.at(group, a.microbatch) : 0) +
           (again ? of.forward_ms.at(group, a.microbatch) : 0);
  };
  double makespan = 0;
  for (bool has_changed = true; has_changed;) {
    has_changed = false;
    for (size_t rank = 0; rank < schedule.rows.size(); ++rank) {
      double free = 0;
      for (const Action& a : schedule.rows[rank]) {
        const int32_t group = group_of(a, rank);
        double& ends = end[{a.kind, a.stage, a.microbatch, group}];
        // Members of a group share the entry, so each pushes the others until all agree.
        const double mine = std::max(ends, std::max(free, input(a, group, rank)) + duration(a, group));
        has_changed |= mine > ends;
        free = ends = mine;
        makespan = std::max(makespan, free);
      }
    }
  }
  return makespan;
}

TEST(RunEncoders, RandomPlacementsAgreeWithARelaxationOfStartTimes) {
  std::mt19937_64 random(21);
  for (int trial = 0; trial < 60; ++trial) {
    const RandomCase c = random_case(random);
    const auto extra = [&](EncoderForm form, std::vector<std::vector<int32_t>> groups, int32_t stages) {
      ScheduledEncoder rows = encoder_rows({.microbatches = c.llm.num_microbatches, .mbs_scale = 2}, std::move(groups));
      rows.num_stages = stages;
      rows.is_trained = trial % 2 == 0;
      if (form == EncoderForm::kStream)
        rows.live_macro_batches =
            least_live_macro_batches(c.llm, rows) + (rows.is_trained ? stages - 1 : 0) + trial % 2;
      return placement(form, rows, 0.7, 1.1);
    };
    std::vector<EncoderPlacement> encoders = {c.encoder};
    if (trial % 3 > 0)
      encoders.push_back(extra(EncoderForm::kStream, groups_of(c.llm.num_ranks(), 4, 2), 1 + trial % 2));
    if (trial % 3 > 1) encoders.push_back(extra(EncoderForm::kBefore, groups_of(0, c.llm.num_ranks(), 2), 1));
    encoders[0].rows.live_macro_batches = trial % 4 == 0 ? 0 : least_live_macro_batches(c.llm, c.encoder.rows);
    PipelineCosts costs = costs_of(c.llm, encoders, c.durations);
    costs.p2p_ms = CostTable(0.05);
    for (EncoderCosts& of : costs.encoders) of.bridge_ms = 0.125, of.p2p_ms = CostTable(0.25);
    const Result<Schedule> placed = place_encoders(c.llm, encoders, c.durations);
    ASSERT_TRUE(placed.ok()) << placed.error().message();
    EXPECT_NEAR(run_schedule(*lower_schedule(*placed), costs).makespan_ms, makespan_by_relaxation(*placed, costs), 1e-9)
        << c.text;
  }
}

TEST(RunEncoders, AStepEndsWithTheirReductionsThenUpdates) {
  const Schedule llm = pipeline(ScheduleName::k1f1b, 2, 1, 4);
  const StageDurations durations = uniform(2, 1, 1, 1);
  for (const bool overlaps : {true, false}) {
    for (const EncoderForm form : {EncoderForm::kBefore, EncoderForm::kStream}) {
      const bool is_stream = form == EncoderForm::kStream;
      const std::vector<EncoderPlacement> encoders = {
          placement(form, encoder_rows({.microbatches = 4}, groups_of(is_stream ? 2 : 0, 2, 1)), 1, 2)};
      PipelineCosts costs = costs_of(llm, encoders, durations);
      const Schedule placed = *place_encoders(llm, encoders, durations);
      const ScheduleRun without = run_schedule(*lower_schedule(placed), costs);
      costs.overlaps_reduce = overlaps;
      costs.update_ms = CostTable(0.25);
      costs.encoders[0].reduce_ms = CostTable(2, 1, {3, 5});
      costs.encoders[0].update_ms = CostTable(2, 1, {0.5, 0.75});
      const Schedule lowered = *lower_schedule(with_step_end(placed));
      EXPECT_FALSE(find_problem(lowered)) << show_problem(lowered, *find_problem(lowered));
      const ScheduleRun with = run_schedule(lowered, costs);
      // Stages update after the encoders of their rank are reduced: ranks of one step know all gradients then.
      for (size_t group = 0; group < 2; ++group) {
        const size_t rank = group + (is_stream ? 2 : 0);
        const double end_ms = without.end_ms[rank] + (group == 0 ? 3 + 0.5 : 5 + 0.75) + (is_stream ? 0 : 0.25);
        EXPECT_DOUBLE_EQ(with.end_ms[rank], end_ms) << rank;
      }
    }
  }
}

TEST(RunEncoders, TheTimelineShowsAGroupsActionsAtOneTimeOnAllItsRanks) {
  const Schedule llm = pipeline(ScheduleName::k1f1b, 4, 1, 6);
  const EncoderPlacement encoder =
      placement(EncoderForm::kFill, encoder_rows({.microbatches = 6}, groups_of(0, 4, 2)), 0.4, 0.9);
  Timeline timeline;
  run(llm, {encoder}, uniform(4, 1, 1, 1), &timeline);
  EXPECT_EQ(timeline.encoder_names, std::vector<std::string>{"vision"});
  std::map<std::pair<std::string, size_t>, std::vector<double>> starts;
  for (size_t rank = 0; rank < timeline.ranks.size(); ++rank) {
    double free = 0;
    for (const TimelineEvent& event : timeline.ranks[rank]) {
      if (event.stream != Stream::kCompute) continue;
      EXPECT_GE(event.start_ms, free);
      free = event.end_ms;
      if (is_encoder(event.action.kind)) starts[{to_text(event.action), rank / 2}].push_back(event.start_ms);
    }
  }
  EXPECT_EQ(starts.size(), 2u * 2 * 6);
  for (const auto& [action, times] : starts) {
    ASSERT_EQ(times.size(), 2u) << action.first;
    EXPECT_EQ(times[0], times[1]) << action.first;
  }
}

}  // namespace
}  // namespace weft
