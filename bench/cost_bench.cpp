// How fast plans are priced on one core, as a search does it: stage costs of Qwen2-VL-72B with its vision encoder
// inline, tp 8, pp 8 and dp 1 to 64 on ascend_910b_16, layers and recomputation moved about so that no two plans in a
// row are the same, with blocks that were priced before (a warm cache), on consecutive ranks and on ranks in an order
// of their own. Counts allocations, of which there must be none. Beside it, the time of pricing blocks anew and of
// playing the schedule.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <numeric>

#include "weft/meaning/check.h"
#include "weft/simulate/plan_simulator.h"
#include "weft/spec/scenario.h"

namespace {
long num_allocations = 0;
}  // namespace

void* operator new(size_t size) {
  ++num_allocations;
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}

namespace {

using namespace weft;
using Clock = std::chrono::steady_clock;

double microseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

ModulePlan module_of(ModuleKind kind, int64_t dp, std::vector<std::vector<int64_t>> layers) {
  ModulePlan m{.kind = kind,
               .placement = kind == ModuleKind::kLlm ? ModulePlacement::kBase : ModulePlacement::kInline,
               .axis_order = {"tp", "cp", "dp", "pp"},
               .layers = std::move(layers)};
  m.degrees() = {.tp = 8, .pp = 8, .dp = dp, .sequence_parallel = true, .zero = 1};
  m.ranks.resize(static_cast<size_t>(64 * dp));
  std::iota(m.ranks.begin(), m.ranks.end(), 0);
  m.recompute.assign(8, std::vector<Recompute>(1));
  return m;
}

Plan make_plan(int64_t dp) {
  const Scenarios scenarios(std::filesystem::path(WEFT_SOURCE_DIR) / "scenarios");
  Plan plan;
  plan.model = *scenarios.model("qwen2-vl-72b");
  plan.cluster = *scenarios.cluster("ascend_910b_16", 4 * dp);
  plan.workload = *scenarios.workload("vl_sft");
  plan.world_size = 64 * dp;
  plan.workload.global_batch_samples = 64 * dp;
  plan.modules = {module_of(ModuleKind::kVision, dp, {{32}, {0}, {0}, {0}, {0}, {0}, {0}, {0}}),
                  module_of(ModuleKind::kLlm, dp, {{6}, {11}, {11}, {11}, {11}, {11}, {10}, {9}})};
  plan.schedule = {.name = "1f1b", .mbs = 1, .microbatches = 64};
  if (!check_plan(plan).empty()) {
    std::printf("not legal: %s\n", check_plan(plan).front().message.c_str());
    std::exit(1);
  }
  return plan;
}

/// Moves layers and recomputation between stages.
void change(Plan& plan, int round) {
  auto& layers = plan.modules[1].layers;
  const auto from = static_cast<size_t>(round % 7);
  std::swap(layers[from][0], layers[from + 1][0]);
  plan.modules[1].recompute[from][0] = RecomputeCounts{.full = round % 5, .selective = round % 3};
}

/// Puts the second half of the ranks before the first.
void reorder_ranks(Plan& plan) {
  for (ModulePlan& module : plan.modules)
    std::rotate(module.ranks.begin(), module.ranks.begin() + static_cast<long>(module.ranks.size() / 2),
                module.ranks.end());
}

/// How many allocations it took.
long price(int64_t dp, bool is_consecutive) {
  Plan plan = make_plan(dp);
  if (!is_consecutive) reorder_ranks(plan);
  CostModel model = *CostModel::create(plan);
  PlanCosts costs;
  const auto cold = Clock::now();
  model.price(plan, costs);
  const double cold_us = microseconds_since(cold);
  constexpr int kRounds = 20'001;
  std::vector<double> times(kRounds);
  double checksum = 0;
  const long before = num_allocations;
  for (int round = 0; round < kRounds; ++round) {
    change(plan, round);
    const auto start = Clock::now();
    model.price(plan, costs);
    times[static_cast<size_t>(round)] = microseconds_since(start);
    checksum += costs.stages[3].forward_ms();
  }
  const long allocations = num_allocations - before;
  std::sort(times.begin(), times.end());
  std::printf(
      "dp %2ld, %4ld ranks%s: warm %.2f us (median; 99 %% below %.2f), %ld allocations; blocks anew %.0f us (checksum "
      "%.1f)\n",
      static_cast<long>(dp), static_cast<long>(plan.world_size), is_consecutive ? "" : " reordered", times[kRounds / 2],
      times[kRounds * 99 / 100], allocations, cold_us, checksum);
  return allocations;
}

void play() {
  const Plan plan = make_plan(2);
  PlanSimulator simulator = *PlanSimulator::create(plan);
  const Schedule schedule = *playable_schedule(plan);
  std::vector<double> times(501);
  double step_ms = 0;
  for (double& time : times) {
    const auto start = Clock::now();
    step_ms = simulator.step_time_ms(plan, schedule);
    time = microseconds_since(start);
  }
  std::sort(times.begin(), times.end());
  std::printf("priced and played, pp 8 x 64 microbatches: %.0f us (step %.1f ms)\n", times[250], step_ms);
}

}  // namespace

int main() {
  long allocations = 0;
  for (const bool is_consecutive : {true, false}) {
    for (const int64_t dp : {1, 8, 64}) allocations += price(dp, is_consecutive);
  }
  play();
  return allocations == 0 ? 0 : 1;
}
