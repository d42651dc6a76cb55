#pragma once

#include <algorithm>
#include <set>

#include "tests/support/draws.h"
#include "tests/support/first_seed.h"
#include "tests/support/meaning/random_plan.h"
#include "tests/support/pipeline/example_load.h"
#include "tests/support/pipeline/random_settings.h"
#include "tests/support/pipeline/tiny_models.h"
#include "tests/support/spec/random_adapters.h"
#include "weft/meaning/expert_ranks.h"
#include "weft/meaning/rank_groups.h"
#include "weft/meaning/routers.h"
#include "weft/plan/module_mesh.h"
#include "weft/spec/num_experts.h"
#include "weft/tensor/memory_count.h"

// One step of a plan drawn at random, on threads.
namespace weft {

/// Bytes of tensors on one rank.
struct RankMemory {
  int64_t start_peak = 0;  ///< while the rank was made
  int64_t batch = 0;       ///< of the batch that the step is given
  int64_t before_step = 0;
  std::vector<ActionMemory> actions;
};

/// What ranks did.
struct StepRun {
  Plan plan;
  StepLoad load;
  std::vector<std::vector<GroupTraffic>> traffic;  ///< by rank
  std::vector<std::vector<GroupCall>> calls;       ///< by rank: the same in order
  std::vector<std::vector<Action>> actions;        ///< by rank
  std::vector<RankMemory> memory;                  ///< by rank
};

inline StepRun run_step(const TrainingExample& example, const Plan& plan) {
  StepRun run{.plan = plan, .load = {}, .traffic = {}, .calls = {}, .actions = {}};
  run.traffic.resize(static_cast<size_t>(plan.world_size));
  run.calls.resize(run.traffic.size());
  run.actions.resize(run.traffic.size());
  run.memory.resize(run.traffic.size());
  const Routers all_routers = routers_of(plan);
  std::vector<std::vector<std::vector<std::vector<int64_t>>>> routed(static_cast<size_t>(all_routers.count()));
  for (auto& places : routed) places.resize(static_cast<size_t>(num_expert_ranks(plan.llm())));
  std::mutex guard;
  const auto error =
      run_ranks({.size = plan.world_size, .comm = {.timeout = std::chrono::seconds(60)}}, [&](World& world) {
        at::set_num_threads(1);
        RankMemory& memory = run.memory[static_cast<size_t>(world.rank())];
        const auto count = std::make_shared<MemoryCount>();
        const CountedThread counted(count);
        auto made = TrainingRank::create(world, plan, {.seed = kExampleSeed});
        WEFT_CHECK(made.ok(), "{}", made.error().message());
        TrainingRank& rank = **made;
        memory.start_peak = count->peak_bytes();
        const int64_t started = count->current_bytes();
        const std::vector<RawInputs> samples = example_batch(example, rank.numbers(), rank.vocabulary(), 1);
        const StepBatch batch = example_step_batch(rank, samples, plan.balance);
        memory.before_step = count->current_bytes();
        memory.batch = memory.before_step - started;
        const TrafficList before = world.traffic();
        world.keep_calls();
        const StepReport report = rank.step(batch, num_example_targets(samples), kExampleRate);
        const auto index = static_cast<size_t>(world.rank());
        run.traffic[index] = traffic_since(before, world.traffic());
        run.calls[index] = world.calls();
        for (const TimelineEvent& event : report.events) run.actions[index].push_back(event.action);
        memory.actions = report.memory;
        WEFT_CHECK(report.is_updated, "{}", report.not_finite);
        const std::lock_guard lock(guard);
        if (world.rank() == 0) run.load = example_load(rank, samples, batch);
        for (const auto& [key, rows] : report.routed_rows) {
          const std::vector<int64_t> all = rank_groups(plan, plan.modules.size() - 1, world.rank())->routed;
          const auto place = static_cast<size_t>(std::find(all.begin(), all.end(), world.rank()) - all.begin());
          const auto first = static_cast<size_t>(all_routers.first_of_stage[static_cast<size_t>(key.first)]);
          for (size_t router = 0; router < rows.size(); ++router) {
            auto& microbatches = routed[first + router][place];
            microbatches.resize(static_cast<size_t>(plan.schedule.microbatches));
            microbatches[static_cast<size_t>(key.second)] = rows[router];
          }
        }
      });
  WEFT_CHECK(!error, "{}", error->message());
  run.load.routed = std::move(routed);
  return run;
}

/// By the seed, for the model or for it with adapters.
inline Plan draw_step_plan(const Model& model, uint64_t seed) {
  Plan plan = random_plan(maybe_with_adapters(model, seed), seed, {.world_size = seed % 4 == 0 ? 6 : 8});
  draw_settings(seed, plan);
  return plan;
}

/// A step of a plan for a model, both drawn by the seed, with samples that have media or none.
inline StepRun run_drawn_step(const TinyModel& tiny, uint64_t seed) {
  TrainingExample example{.fixture = tiny.fixture,
                          .sizes = tiny.sizes,
                          .microbatches = 1,
                          .balance_coefficient = seed % 2 == 0 ? 0.01 : 0,
                          .steps = 1};
  const Model model = example_model(example);
  const Plan plan = draw_step_plan(model, seed);
  example.mbs = plan.workload.global_batch_samples;
  example.frozen = plan.workload.frozen;
  const bool has_vision = model.find(ModuleKind::kVision) != nullptr;
  const bool has_audio = model.find(ModuleKind::kAudio) != nullptr;  // for which videos need a clock
  example.has_videos = has_vision && !has_audio && seed % 3 == 0;
  if (seed % 5 == 0) example.bare_samples = {0, 1, 2, 3};
  return run_step(example, plan);
}

}  // namespace weft
