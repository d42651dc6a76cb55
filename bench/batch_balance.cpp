// How long it takes to reassign a step's samples on one core, and what it brings: 4,096 samples over 512 data-parallel
// ranks (at most 1 ms wanted), for the llm alone and with an encoder that deals its own macro batches.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

#include "weft/meaning/balance.h"

namespace {

using namespace weft;

constexpr int kRuns = 201;

BatchCosts drawn_costs(int64_t samples) {
  std::mt19937_64 random(1);
  std::lognormal_distribution<double> length(6.5, 0.7);  // cut at a context of 4,096 tokens
  std::uniform_int_distribution<int> images(0, 3);
  BatchCosts costs;
  std::vector<double>& vision = costs.encoders[ModuleKind::kVision];
  for (int64_t i = 0; i < samples; ++i) {
    const double tokens = std::min(4096.0, std::round(length(random))), patches = 1024.0 * images(random);
    costs.llm.push_back(tokens * (1 + tokens / 16384));
    vision.push_back(patches);
  }
  return costs;
}

void measure(const char* name, const BatchShape& shape, const BalancedModules& which) {
  const BatchCosts costs = drawn_costs(shape.llm.size());
  std::vector<double> times_ms;
  BatchAssignment assignment;
  for (int run = 0; run < kRuns; ++run) {
    const auto start = std::chrono::steady_clock::now();
    assignment = assign_balanced(shape, which, costs);
    times_ms.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
  }
  std::sort(times_ms.begin(), times_ms.end());
  std::printf("%s: median %.3f ms, slowest of %d %.3f ms\n", name, times_ms[kRuns / 2], kRuns, times_ms.back());
  const BatchAssignment given = assign_in_order(shape);
  const auto mean = [](const std::vector<double>& values, double parts) {
    double sum = 0;
    for (const double value : values) sum += value;
    return sum / parts;
  };
  const auto print = [](const char* what, double before, double after, double ideal) {
    std::printf("  %-22s %.3f times the mean before, %.3f after\n", what, before / ideal, after / ideal);
  };
  if (which.llm) {
    const LlmSpread before = llm_spread(given.llm, costs.llm), after = llm_spread(assignment.llm, costs.llm);
    const auto ranks = static_cast<double>(shape.llm.data_parallel);
    const double rank = mean(costs.llm, ranks);
    print("busiest rank", before.busiest_rank, after.busiest_rank, rank);
    print("ranks in lockstep", before.longest_in_turn, after.longest_in_turn, rank);
    print("longest microbatch", before.longest_microbatch, after.longest_microbatch,
          rank / static_cast<double>(shape.llm.microbatches));
  }
  for (const auto& [kind, encoder] : shape.encoders) {
    const std::vector<double>& own = costs.encoders.at(kind);
    print("busiest encoder rank", encoder_spread(given.encoders.at(kind), own),
          encoder_spread(assignment.encoders.at(kind), own), mean(own, static_cast<double>(encoder.data_parallel)));
  }
}

}  // namespace

int main() {
  const std::map<ModuleKind, EncoderShape> vision = {{ModuleKind::kVision, {.data_parallel = 512, .mbs_scale = 4}}};
  measure("llm, 512 ranks, 8 microbatches of 1", {.llm = {512, 8, 1}, .encoders = {}}, {.llm = true});
  measure("llm, 512 ranks in lockstep, 8 microbatches of 1", {.llm = {512, 8, 1}, .encoders = {}},
          {.llm = true, .ranks_in_lockstep = true});
  measure("llm, 512 ranks, 4 microbatches of 2", {.llm = {512, 4, 2}, .encoders = {}}, {.llm = true});
  measure("encoder, 512 ranks, scale 4", {.llm = {512, 8, 1}, .encoders = vision}, {.encoders = true});
  measure("both, 512 ranks, 8 microbatches of 1", {.llm = {512, 8, 1}, .encoders = vision},
          {.llm = true, .encoders = true});
  measure("both, 512 ranks, 4 microbatches of 2", {.llm = {512, 4, 2}, .encoders = vision},
          {.llm = true, .encoders = true});
}
