#include "weft/search/schedule_graph.h"

#include <algorithm>
#include <random>

#include <gtest/gtest.h>

#include "weft/schedule/generators.h"
#include "weft/schedule/lowering.h"
#include "weft/schedule/step_end.h"
#include "weft/simulate/run_schedule.h"
#include "weft/simulate/walk_memory.h"

namespace weft {
namespace {

struct Case {
  ScheduleName name;
  int64_t vpp;
};

constexpr Case kCases[] = {
    {ScheduleName::kGpipe, 1},           {ScheduleName::k1f1b, 1}, {ScheduleName::kInterleaved1f1b, 2},
    {ScheduleName::kInterleaved1f1b, 3}, {ScheduleName::kZbH1, 1}, {ScheduleName::kZbV, 2}};

std::vector<StageTimes> random_times(std::mt19937_64& random, int32_t stages, bool is_split) {
  std::uniform_real_distribution<double> time(0, 3);
  std::vector<StageTimes> times;
  for (int32_t s = 0; s < stages; ++s) {
    times.push_back({time(random), time(random), is_split ? time(random) : 0, time(random), time(random),
                     random() % 3 == 0 ? time(random) : 0});
  }
  return times;
}

/// The same times as the simulator takes them.
PipelineCosts costs_of(const Schedule& schedule, const std::vector<StageTimes>& times) {
  const auto table = [&](size_t work) {
    std::vector<double> column;
    for (const StageTimes& of : times) column.push_back(of[work]);
    return CostTable(schedule.num_stages(), schedule.num_microbatches, column);
  };
  std::vector<double> back;
  for (size_t s = 0; s < times.size(); ++s) back.push_back(times[s == 0 ? 0 : s - 1][kTransferWork]);
  return {.forward_ms = table(kForwardWork),
          .backward_input_ms = table(kInputWork),
          .backward_weight_ms = table(kWeightWork),
          .p2p_ms = table(kTransferWork),
          .gradient_p2p_ms = CostTable(schedule.num_stages(), schedule.num_microbatches, back),
          .reduce_grad_ms = table(kReduceWork),
          .update_ms = table(kUpdateWork)};
}

TEST(ScheduleGraph, AgreesWithTheSimulator) {
  std::mt19937_64 random(3);
  for (const Case& c : kCases) {
    for (int trial = 0; trial < 30; ++trial) {
      const Schedule schedule = *generate_schedule(c.name, {.pp = 1 + static_cast<int64_t>(random() % 5),
                                                            .vpp = c.vpp,
                                                            .microbatches = 1 + static_cast<int64_t>(random() % 9)});
      const std::vector<StageTimes> times =
          random_times(random, schedule.num_stages(), kind_of(c.name).splits_backward);
      EXPECT_NEAR(ScheduleGraph(schedule).makespan_ms(times),
                  run_schedule(*lower_schedule(schedule), costs_of(schedule, times)).makespan_ms, 1e-9)
          << name_of(c.name);
      const Schedule whole = with_step_end(schedule);
      EXPECT_NEAR(ScheduleGraph(whole).makespan_ms(times),
                  run_schedule(*lower_schedule(whole), costs_of(schedule, times)).makespan_ms, 1e-9)
          << name_of(c.name);
    }
  }
}

TEST(ScheduleGraph, TheCriticalPathIsAsLongAsTheMakespanAndNoLongerThanAnyOther) {
  std::mt19937_64 random(4);
  for (const Case& c : kCases) {
    const Schedule schedule = *generate_schedule(c.name, {.pp = 4, .vpp = c.vpp, .microbatches = 7});
    ScheduleGraph graph(schedule);
    for (int trial = 0; trial < 50; ++trial) {
      const std::vector<StageTimes> times =
          random_times(random, schedule.num_stages(), kind_of(c.name).splits_backward);
      const double makespan = graph.makespan_ms(times);
      const CriticalPath path = graph.critical_path();
      EXPECT_NEAR(path.length_ms(times), makespan, 1e-9);
      const std::vector<StageTimes> other =
          random_times(random, schedule.num_stages(), kind_of(c.name).splits_backward);
      EXPECT_LE(path.length_ms(other), graph.makespan_ms(other) + 1e-9) << name_of(c.name);
    }
  }
}

TEST(ScheduleGraph, NoActionGetsFasterWhenAnotherGetsSlower) {
  std::mt19937_64 random(5);
  for (const Case& c : kCases) {
    const Schedule schedule = *generate_schedule(c.name, {.pp = 3, .vpp = c.vpp, .microbatches = 5});
    ScheduleGraph graph(schedule);
    for (int trial = 0; trial < 50; ++trial) {
      std::vector<StageTimes> times = random_times(random, schedule.num_stages(), kind_of(c.name).splits_backward);
      const double before = graph.makespan_ms(times);
      times[random() % times.size()][random() % kNumWorks] += 0.5;
      EXPECT_GE(graph.makespan_ms(times), before);
    }
  }
}

TEST(MemoryMoments, GiveThePeakOfAWalkOverTheRows) {
  std::mt19937_64 random(6);
  for (const Case& c : kCases) {
    for (int64_t pp = 1; pp <= 5; ++pp) {
      for (const int64_t m : {1, 3, 4, 9, 16}) {
        const Schedule schedule = *generate_schedule(c.name, {.pp = pp, .vpp = c.vpp, .microbatches = m});
        std::vector<StageMemory> stages;
        for (int32_t s = 0; s < schedule.num_stages(); ++s) {
          stages.push_back({.activation_bytes = static_cast<double>(random() % 100),
                            .freed_by_input_gradient_bytes =
                                kind_of(c.name).splits_backward ? -static_cast<double>(random() % 50) : 0,
                            .workspace_bytes = static_cast<double>(random() % 100)});
        }
        const std::vector<double> peaks = peak_memory_bytes(schedule, stages);
        for (int32_t rank = 0; rank < schedule.num_ranks(); ++rank) {
          const std::vector<int32_t> own = stages_of_rank(schedule, rank);
          double peak = 0;
          for (const MemoryMoment& moment : memory_moments(schedule, rank)) {
            double sum = stages[static_cast<size_t>(own[static_cast<size_t>(moment.runs)])].workspace_bytes;
            for (size_t chunk = 0; chunk < own.size(); ++chunk) {
              const StageMemory& stage = stages[static_cast<size_t>(own[chunk])];
              sum += moment.held[chunk] * stage.activation_bytes -
                     moment.deferred[chunk] * stage.freed_by_input_gradient_bytes;
            }
            peak = std::max(peak, sum);
          }
          EXPECT_EQ(peak, peaks[static_cast<size_t>(rank)]) << name_of(c.name) << " pp " << pp << " m " << m;
        }
      }
    }
  }
}

TEST(MemoryMoments, AreFew) {
  const Schedule schedule = *generate_schedule(ScheduleName::kInterleaved1f1b, {.pp = 8, .vpp = 2, .microbatches = 64});
  for (int32_t rank = 0; rank < 8; ++rank) EXPECT_LE(memory_moments(schedule, rank).size(), 6u) << rank;
}

}  // namespace
}  // namespace weft
