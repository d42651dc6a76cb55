// How long the exact balance takes on one core, from a parsed file to the proven optimum:
//   1. pp 8, 32 microbatches, 112 blocks, 56 GiB (at most 20 ms wanted),
//   2. pp 16, 128 microbatches, the same chain, 40 GiB (at most 100 ms wanted).
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

#include "weft/search/balance.h"

namespace {

using namespace weft;

BalanceCosts vision_language(int64_t pp, int64_t microbatches, double memory_gib) {
  return {.schedule = ScheduleName::k1f1b,
          .shape = {.pp = pp, .vpp = 1, .microbatches = microbatches},
          .p2p_ms = 0.7,
          .memory_gib = memory_gib,
          .chain = {{"vit", 32, {3.1, 6.2, 0}, 0.35, 0.33, 0.17}, {"llm", 80, {9.7, 19.6, 0}, 0.92, 0.88, 1.75}},
          .first_stage = {{1.5, 1.0, 0}, 2.5},
          .last_stage = {{11.0, 21.0, 0}, 2.6}};
}

void solve_often(int64_t pp, int64_t microbatches, double memory_gib) {
  const BalanceCosts costs = vision_language(pp, microbatches, memory_gib);
  std::vector<double> times_ms;
  double makespan_ms = 0;
  bool is_optimal = true;
  for (int i = 0; i < 21; ++i) {
    const auto start = std::chrono::steady_clock::now();
    const Result<BalancedPipeline> found = balance(costs);
    times_ms.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
    makespan_ms = found->makespan_ms;
    is_optimal &= found->is_optimal;
  }
  std::sort(times_ms.begin(), times_ms.end());
  std::printf("pp %ld x %ld, 112 blocks, %.0f GiB: median %.1f ms, slowest %.1f ms (makespan %.1f ms, %s)\n", pp,
              microbatches, memory_gib, times_ms[10], times_ms.back(), makespan_ms,
              is_optimal ? "optimal" : "not proven");
}

}  // namespace

int main() {
  solve_often(8, 32, 56);
  solve_often(16, 128, 40);
}
