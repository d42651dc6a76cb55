#include "weft/simulate/run_schedule.h"

#include <algorithm>
#include <map>
#include <random>

#include <gtest/gtest.h>

#include "weft/schedule/generators.h"
#include "weft/schedule/lowering.h"
#include "weft/schedule/step_end.h"
#include "weft/simulate/walk_memory.h"

namespace weft::run_schedule_test {
namespace {

Schedule lowered(ScheduleName name, int64_t pp, int64_t vpp, int64_t m) {
  return *lower_schedule(*generate_schedule(name, {.pp = pp, .vpp = vpp, .microbatches = m}));
}

PipelineCosts uniform(double f, double i, double w, double p2p = 0) {
  return {.forward_ms = CostTable(f),
          .backward_input_ms = CostTable(i),
          .backward_weight_ms = CostTable(w),
          .p2p_ms = CostTable(p2p)};
}

double ratio(int64_t a, int64_t b) {
  return static_cast<double>(a) / static_cast<double>(b);
}

TEST(RunSchedule, GpipeAnd1f1bHaveTheTextbookBubble) {
  for (int64_t p = 1; p <= 8; ++p) {
    for (int64_t m = 1; m <= 32; ++m) {
      for (const ScheduleName name : {ScheduleName::kGpipe, ScheduleName::k1f1b}) {
        EXPECT_NEAR(run_schedule(lowered(name, p, 1, m), uniform(1, 1, 1)).bubble_fraction, ratio(p - 1, m + p - 1),
                    1e-12)
            << name_of(name) << " p " << p << " m " << m;
      }
    }
  }
}

TEST(RunSchedule, InterleavingDividesTheBubble) {
  for (int64_t p = 1; p <= 8; ++p) {
    for (int64_t v = 2; v <= 4; ++v) {
      for (int64_t m = p; m <= 32; m += p) {
        EXPECT_NEAR(run_schedule(lowered(ScheduleName::kInterleaved1f1b, p, v, m), uniform(1, 1, 1)).bubble_fraction,
                    ratio(p - 1, v * m + p - 1), 1e-12)
            << "p " << p << " v " << v << " m " << m;
      }
    }
  }
}

TEST(RunSchedule, ZbH1IdlesPMinusOneTimesForwardPlusInputMinusWeight) {
  for (int64_t p = 1; p <= 8; ++p) {
    for (int64_t m = p; m <= 32; ++m) {
      const ScheduleRun run = run_schedule(lowered(ScheduleName::kZbH1, p, 1, m), uniform(2, 2, 2));
      EXPECT_NEAR(run.makespan_ms - run.busy_ms[0], 2.0 * static_cast<double>(p - 1), 1e-9) << "p " << p << " m " << m;
      EXPECT_LE(*std::max_element(run.peak_in_flight.begin(), run.peak_in_flight.end()), p)
          << "no more memory than 1F1B";
    }
  }
}

TEST(RunSchedule, ZbVIdlesPMinusOneChunkForwards) {
  for (int64_t p = 1; p <= 8; ++p) {
    for (int64_t m = 2 * p; m <= 32; ++m) {
      const ScheduleRun run = run_schedule(lowered(ScheduleName::kZbV, p, 2, m), uniform(1, 1, 1));
      EXPECT_NEAR(run.makespan_ms - run.busy_ms[0], static_cast<double>(p - 1), 1e-9) << "p " << p << " m " << m;
      EXPECT_LE(*std::max_element(run.peak_in_flight.begin(), run.peak_in_flight.end()), 2 * p);
    }
  }
}

TEST(RunSchedule, OneForwardOneBackwardHoldsMinOfRanksBehindAndMicrobatches) {
  for (int32_t p = 1; p <= 8; ++p) {
    for (int32_t m = 1; m <= 32; ++m) {
      const ScheduleRun run = run_schedule(lowered(ScheduleName::k1f1b, p, 1, m), uniform(1, 1, 1));
      for (int32_t r = 0; r < p; ++r)
        EXPECT_EQ(run.peak_in_flight[static_cast<size_t>(r)], std::min(p - r, m)) << "p " << p << " m " << m;
    }
  }
}

/// The same semantics written as a fixed-point iteration over start times, without streams, channels or work lists: an
/// action starts when the one before it in its row has ended and its input has arrived.
double makespan_by_relaxation(const Schedule& schedule, const PipelineCosts& costs) {
  const auto duration = [&](const Action& a) {
    switch (a.kind) {
      case ActionKind::kForward:
        return costs.forward_ms.at(a.stage, a.microbatch);
      case ActionKind::kBackward:
        return costs.backward_input_ms.at(a.stage, a.microbatch) + costs.backward_weight_ms.at(a.stage, a.microbatch);
      case ActionKind::kBackwardInput:
        return costs.backward_input_ms.at(a.stage, a.microbatch);
      default:
        return costs.backward_weight_ms.at(a.stage, a.microbatch);
    }
  };
  std::map<std::pair<int32_t, int32_t>, double> forward_end, gradient_end;
  double makespan = 0;
  for (bool has_changed = true; has_changed;) {
    has_changed = false;
    for (size_t rank = 0; rank < schedule.rows.size(); ++rank) {
      double free = 0;
      for (const Action& a : schedule.rows[rank]) {
        if (!is_pipeline_compute(a.kind)) continue;
        const bool is_gradient = a.kind == ActionKind::kBackward || a.kind == ActionKind::kBackwardInput;
        double start = free;
        const int32_t source = a.kind == ActionKind::kForward ? a.stage - 1 : a.stage + 1;
        const bool has_source =
            (a.kind == ActionKind::kForward || is_gradient) && source >= 0 && source < schedule.num_stages();
        if (has_source) {
          const bool crosses = schedule.rank_of_stage[static_cast<size_t>(source)] != static_cast<int32_t>(rank);
          const double arrival = (a.kind == ActionKind::kForward ? forward_end : gradient_end)[{source, a.microbatch}] +
                                 (crosses ? costs.p2p_ms.at(source, a.microbatch) : 0);
          start = std::max(start, arrival);
        }
        free = start + duration(a);
        if (a.kind == ActionKind::kForward || is_gradient) {
          double& end = (is_gradient ? gradient_end : forward_end)[{a.stage, a.microbatch}];
          has_changed |= free > end;
          end = std::max(end, free);
        }
        makespan = std::max(makespan, free);
      }
    }
  }
  return makespan;
}

TEST(RunSchedule, RandomCostsAgreeWithARelaxationOfStartTimes) {
  std::mt19937_64 random(11);
  std::uniform_real_distribution<double> time(0.1, 3.0);
  for (const auto& [name, vpp] : {std::pair{ScheduleName::kGpipe, 1},
                                  {ScheduleName::k1f1b, 1},
                                  {ScheduleName::kInterleaved1f1b, 3},
                                  {ScheduleName::kZbH1, 1},
                                  {ScheduleName::kZbV, 2}}) {
    for (int trial = 0; trial < 20; ++trial) {
      const int32_t pp = 1 + static_cast<int32_t>(random() % 6), m = 1 + static_cast<int32_t>(random() % 12);
      const Schedule schedule = lowered(name, pp, vpp, m);
      const auto table = [&] {
        std::vector<double> values;
        for (int32_t i = 0; i < schedule.num_stages() * m; ++i) values.push_back(time(random));
        return CostTable(schedule.num_stages(), m, std::move(values));
      };
      const PipelineCosts costs{table(), table(), table(), table()};
      EXPECT_NEAR(run_schedule(schedule, costs).makespan_ms, makespan_by_relaxation(schedule, costs), 1e-9)
          << name_of(name) << " pp " << pp << " m " << m;
    }
  }
}

TEST(RunSchedule, TransfersDelayTheReceiverAndKeepNobodyBusy) {
  const ScheduleRun run = run_schedule(lowered(ScheduleName::k1f1b, 2, 1, 1), uniform(10, 5, 5, 3));
  EXPECT_EQ(run.makespan_ms, 10 + 3 + 10 + 10 + 3 + 10);
  EXPECT_EQ(run.busy_ms[0], 20);
}

TEST(RunSchedule, BandwidthMakesTransfersQueueOnTheirChannel) {
  // Three forwards of 1 ms, each transfer keeps the channel for 5 ms: the last arrives at 1 + 3 · 5 + 2.
  PipelineCosts costs = uniform(1, 0, 0, 2);
  costs.p2p_busy_ms = CostTable(5);
  const ScheduleRun run = run_schedule(lowered(ScheduleName::kGpipe, 2, 1, 3), costs);
  // Rank 1 runs F2 until 19, then its three backwards at once; three gradients queue on the way back.
  EXPECT_EQ(run.makespan_ms, 1 + 3 * 5 + 2 + 1 + 3 * 5 + 2);
}

TEST(RunSchedule, ReductionsOverlapWithWhatFollowsAndUpdatesWaitForThem) {
  const Schedule schedule =
      *lower_schedule(with_step_end(*generate_schedule(ScheduleName::kZbV, {.pp = 1, .vpp = 2, .microbatches = 1})));
  // 0F 1F 1I 1W 1REDUCE 0I 0W 0REDUCE 1UPDATE 0UPDATE, each compute action 1 ms.
  PipelineCosts costs = uniform(1, 1, 1);
  costs.reduce_grad_ms = CostTable(1.5);
  costs.update_ms = CostTable(0.25);
  const ScheduleRun overlapped = run_schedule(schedule, costs);
  EXPECT_EQ(overlapped.makespan_ms, 6 + 1.5 + 0.25)
      << "the first reduction hides behind 0I and 0W, the second does not";
  costs.overlaps_reduce = false;
  EXPECT_EQ(run_schedule(schedule, costs).makespan_ms, 6 + 2 * 1.5 + 2 * 0.25);
  costs.overlaps_reduce = true;
  costs.reduce_grad_ms = CostTable(10);
  EXPECT_EQ(run_schedule(schedule, costs).makespan_ms, 4 + 2 * 10 + 0.25) << "reductions are one after the other";
}

TEST(WalkMemory, OneForwardOneBackwardHoldsWhatIsInFlight) {
  for (int64_t p = 1; p <= 8; ++p) {
    for (int64_t m = 1; m <= 12; ++m) {
      const Schedule schedule = *generate_schedule(ScheduleName::k1f1b, {.pp = p, .vpp = 1, .microbatches = m});
      std::vector<StageMemory> stages;
      for (int64_t s = 0; s < p; ++s)
        stages.push_back({.static_bytes = 100.0 + static_cast<double>(s), .activation_bytes = 7, .workspace_bytes = 3});
      const std::vector<double> peaks = peak_memory_bytes(schedule, stages);
      for (int64_t r = 0; r < p; ++r) {
        EXPECT_EQ(peaks[static_cast<size_t>(r)],
                  100.0 + static_cast<double>(r) + 7.0 * static_cast<double>(std::min(p - r, m)) + 3);
      }
    }
  }
}

TEST(WalkMemory, ASplitBackwardFreesInTwoParts) {
  const Schedule schedule = *generate_schedule(ScheduleName::kZbH1, {.pp = 2, .vpp = 1, .microbatches = 3});
  // Rank 1: F0 I0 F1 I1 W0 F2 I2 W1 W2. With half freed by I, the most is two halves and a whole.
  const std::vector<double> peaks = peak_memory_bytes(
      schedule, {{.activation_bytes = 8}, {.activation_bytes = 8, .freed_by_input_gradient_bytes = 4}});
  EXPECT_EQ(peaks[1], 12);
}

TEST(RunSchedule, TheTimelineHoldsEveryActionOnceAndNeverOverlaps) {
  Timeline timeline;
  const Schedule schedule = lowered(ScheduleName::kZbV, 4, 2, 6);
  const ScheduleRun run = run_schedule(schedule, uniform(1, 2, 0.5, 0.1), &timeline);
  EXPECT_EQ(timeline.makespan_ms, run.makespan_ms);
  for (size_t rank = 0; rank < timeline.ranks.size(); ++rank) {
    double free = 0;
    std::vector<Action> order;
    for (const TimelineEvent& event : timeline.ranks[rank]) {
      if (event.stream != Stream::kCompute) continue;
      EXPECT_GE(event.start_ms, free);
      free = event.end_ms;
      order.push_back(event.action);
    }
    std::vector<Action> expected;
    for (const Action& a : schedule.rows[rank]) {
      if (is_pipeline_compute(a.kind)) expected.push_back(a);
    }
    EXPECT_EQ(order, expected) << "what was simulated is, action for action, the schedule";
  }
}

std::string costs_finding(const std::string& text) {
  const Result<PipelineCosts> costs = read_pipeline_costs(*parse_document(text, "c.json", Syntax::kJson), 2, 3);
  return costs ? "" : costs.error().message();
}

TEST(PipelineCosts, NumbersArraysAndMatricesAreRead) {
  const std::string rest = R"("backward_input_ms": [1, 2], "backward_weight_ms": 3)";
  EXPECT_EQ(costs_finding("{\"forward_ms\": [[1, 2, 3], [4, 5, 6]], " + rest + "}"), "");
  const PipelineCosts costs = *read_pipeline_costs(
      *parse_document("{\"forward_ms\": [[1, 2, 3], [4, 5, 6]], " + rest + "}", "c", Syntax::kJson), 2, 3);
  EXPECT_EQ(costs.forward_ms.at(1, 2), 6);
  EXPECT_EQ(costs.backward_input_ms.at(1, 2), 2);
  EXPECT_EQ(costs.backward_weight_ms.at(1, 2), 3);
  EXPECT_EQ(costs.p2p_ms.at(1, 2), 0);
}

TEST(PipelineCosts, WrongShapesAndTimesNameTheField) {
  const std::string rest = R"("backward_input_ms": 1, "backward_weight_ms": 1)";
  EXPECT_EQ(costs_finding("{" + rest + "}"),
            "c.json: forward_ms: is missing. Give a number, an array per stage, or a matrix [stage][microbatch].");
  EXPECT_EQ(
      costs_finding("{\"forward_ms\": [1, 2, 3], " + rest + "}"),
      "c.json: forward_ms: has 3 entries, but the schedule has 2 stages. Give one a stage, or a single number for "
      "all of them.");
  EXPECT_EQ(costs_finding("{\"forward_ms\": [[1, 2, 3], [4, 5]], " + rest + "}"),
            "c.json: forward_ms[1]: has 2 entries, but the schedule has 3 microbatches. Give one a microbatch, or a "
            "single number a stage.");
  EXPECT_EQ(costs_finding("{\"forward_ms\": [[1, 2, 3], 4], " + rest + "}"),
            "c.json: forward_ms[1]: numbers and arrays are mixed, all entries must be of one kind");
  EXPECT_EQ(costs_finding("{\"forward_ms\": [1, -2], " + rest + "}"),
            "c.json: forward_ms[1]: is the number -2, a time in milliseconds from 0 to 1000000000 is needed");
  EXPECT_EQ(costs_finding("{\"forward_ms\": 1, \"update_ms\": [[1, 1, 1], [1, 1, 1]], " + rest + "}"),
            "c.json: update_ms: is a matrix, but it belongs to whole stages. Give a number or an array per stage.");
  EXPECT_EQ(costs_finding("{\"forward_ms\": 1, \"bakward\": 2, " + rest + "}").substr(0, 16), "c.json: bakward:");
}

}  // namespace
}  // namespace weft::run_schedule_test
