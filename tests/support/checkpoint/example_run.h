#pragma once

#include <chrono>
#include <mutex>

#include <ATen/Parallel.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include "tests/support/source_tree.h"
#include "weft/checkpoint/load_checkpoint.h"
#include "weft/checkpoint/save_checkpoint.h"
#include "weft/comm/threads/run_threads.h"
#include "weft/plan/plan_json.h"

namespace weft {

// A run without a model for tests: thread ranks with an optimizer each, whose numbers all follow from the step.

/// A shipped plan as if for so many ranks. It need not be legal: nothing here runs it.
inline Plan example_plan(int64_t world_size) {
  auto plan = read_plan_file(source_tree() / "scenarios/plans/llama3-8b_gpipe_tp2_pp2_dp2.json");
  WEFT_CHECK(plan.ok(), "{}", plan.error().message());
  plan->world_size = world_size;
  return *std::move(plan);
}

inline ParameterPtr example_parameter(const std::string& name, std::vector<int64_t> shape, bool is_frozen = false) {
  auto parameter = c10::make_intrusive<Parameter>();
  parameter->spec = {.pieces = {whole_weight(name, shape)}, .shape = shape, .init = {}};
  parameter->value = at::full(shape, 0.5, at::kFloat).set_requires_grad(!is_frozen);
  return parameter;
}

inline OptimizerOptions example_options(int64_t zero) {
  return {.zero = zero, .compute_type = at::kFloat, .master_type = at::kFloat, .reduce_type = at::kFloat};
}

/// Values and moments as they are to be at a step.
inline void set_step(StageOptimizer& optimizer, int64_t step) {
  for (const OwnedPart& part : optimizer.owned_parts()) {
    part.state.master.fill_(static_cast<double>(step));
    if (!part.state.moment1.defined()) continue;
    part.state.moment1.fill_(static_cast<double>(step) + 0.25);
    part.state.moment2.fill_(static_cast<double>(step) + 0.75);
  }
  optimizer.restore(step);
}

/// Whether all of it is that step's.
inline bool is_at_step(StageOptimizer& optimizer, int64_t step) {
  const auto is = [](const at::Tensor& tensor, double number) { return tensor.eq(number).all().item<bool>(); };
  const auto number = static_cast<double>(step);
  bool is_there = optimizer.step() == step;
  for (const OwnedPart& part : optimizer.owned_parts()) {
    is_there &= is(part.state.master, number);
    if (part.state.moment1.defined())
      is_there &= is(part.state.moment1, number + 0.25) && is(part.state.moment2, number + 0.75);
  }
  optimizer.gather_values();
  for (const StageParameter& parameter : optimizer.parameters()) is_there &= is(parameter.parameter->value, number);
  return is_there;
}

inline void on_thread_ranks(int64_t size, const std::function<void(World&)>& body) {
  const auto error = run_thread_ranks(size, {.timeout = std::chrono::seconds(60)}, [&](World& world) {
    at::set_num_threads(1);
    body(world);
  });
  WEFT_CHECK(!error, "{}", error->message());
}

inline constexpr int64_t kExampleRanks = 2;
inline constexpr int64_t kExampleChunk = 1024;

inline std::unique_ptr<StageOptimizer> example_optimizer(World& world, int64_t zero, int64_t rows = 64) {
  std::vector<StageParameter> parameters = {{example_parameter("a.weight", {rows, 33})},
                                            {example_parameter("b.bias", {7})},
                                            {example_parameter("frozen.weight", {5, 5}, true)}};
  return std::make_unique<StageOptimizer>(std::move(parameters), world.all(), example_options(zero));
}

inline Result<SavedCheckpoint> save_at_step(const std::filesystem::path& folder, int64_t step, World& world,
                                            StageOptimizer& optimizer, int64_t keep_last = 0) {
  set_step(optimizer, step);
  const Plan plan = example_plan(world.size());
  StageOptimizer* const all[] = {&optimizer};
  return save_checkpoint(
      {.checkpoints = folder, .step = step, .plan = plan, .keep_last = keep_last, .chunk_bytes = kExampleChunk},
      world.all(), all);
}

/// Saves these steps one after the other, on two ranks.
inline void save_example(const std::filesystem::path& folder, const std::vector<int64_t>& steps, int64_t keep_last = 0,
                         int64_t zero = 1) {
  on_thread_ranks(kExampleRanks, [&](World& world) {
    const auto optimizer = example_optimizer(world, zero);
    for (const int64_t step : steps) {
      const auto saved = save_at_step(folder, step, world, *optimizer, keep_last);
      WEFT_CHECK(saved.ok(), "{}", saved.error().message());
      EXPECT_FALSE(saved->warning);
    }
  });
}

/// The message of loading a checkpoint, which all ranks have alike; empty where it loads as the step that it is.
inline std::string load_problem(const std::filesystem::path& folder, int64_t zero = 1, int64_t rows = 64) {
  const auto checkpoint = read_checkpoint(folder);
  if (!checkpoint) return checkpoint.error().message();
  std::mutex guard;
  std::vector<std::string> messages;
  on_thread_ranks(kExampleRanks, [&](World& world) {
    const auto optimizer = example_optimizer(world, zero, rows);
    StageOptimizer* const all[] = {optimizer.get()};
    const auto error = load_checkpoint(*checkpoint, world.all(), all);
    const std::string message = error                                      ? error->message()
                                : is_at_step(*optimizer, checkpoint->step) ? ""
                                                                           : "loads as something else";
    const std::lock_guard lock(guard);
    messages.push_back(message);
  });
  EXPECT_EQ(messages.front(), messages.back());
  return messages.front();
}

}  // namespace weft
