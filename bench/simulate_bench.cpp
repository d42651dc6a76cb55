// How fast schedules are simulated on one core:
//   1. lowered actions per second (1F1B, pp 16, 1,024 microbatches; generation not counted),
//   2. 1,563 pipelines of pp 64 with 64 microbatches, each with costs of its own: generated, lowered and simulated.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <random>
#include <sys/resource.h>
#include <vector>

#include "weft/schedule/generators.h"
#include "weft/schedule/lowering.h"
#include "weft/simulate/run_schedule.h"

namespace {

using namespace weft;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

Schedule lowered(int64_t pp, int64_t microbatches) {
  return *lower_schedule(*generate_schedule(ScheduleName::k1f1b, {.pp = pp, .vpp = 1, .microbatches = microbatches}));
}

CostTable random_costs(std::mt19937_64& random, int32_t stages, int32_t microbatches) {
  std::uniform_real_distribution<double> time(0.5, 1.5);
  std::vector<double> values(static_cast<size_t>(stages * microbatches));
  for (double& value : values) value = time(random);
  return CostTable(stages, microbatches, std::move(values));
}

void simulate_one() {
  const Schedule schedule = lowered(16, 1024);
  const auto actions = static_cast<double>(num_actions(schedule));
  const PipelineCosts costs;
  std::vector<double> rates;
  double checksum = 0;
  for (int i = 0; i < 50; ++i) {
    const auto start = std::chrono::steady_clock::now();
    checksum += run_schedule(schedule, costs).makespan_ms;
    rates.push_back(actions / seconds_since(start));
  }
  std::sort(rates.begin(), rates.end());
  std::printf("1f1b pp 16 x 1024: %.0f lowered actions, median %.1f M actions/s, slowest %.1f (checksum %.0f)\n",
              actions, rates[25] / 1e6, rates[0] / 1e6, checksum);
}

void simulate_many() {
  constexpr int kPipelines = 1563;
  std::mt19937_64 random(1);
  const auto start = std::chrono::steady_clock::now();
  double slowest = 0;
  for (int i = 0; i < kPipelines; ++i) {
    const Schedule schedule = lowered(64, 64);
    const PipelineCosts costs{random_costs(random, 64, 64), random_costs(random, 64, 64), random_costs(random, 64, 64),
                              CostTable(0.1)};
    slowest = std::max(slowest, run_schedule(schedule, costs).makespan_ms);
  }
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  std::printf("%d pipelines of pp 64 x 64: %.2f s, peak memory %.0f MiB (slowest pipeline %.1f ms)\n", kPipelines,
              seconds_since(start), static_cast<double>(usage.ru_maxrss) / 1024, slowest);
}

}  // namespace

int main() {
  simulate_one();
  simulate_many();
}
