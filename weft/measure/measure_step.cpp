#include "weft/measure/measure_step.h"

#include "weft/base/clock.h"
#include "weft/comm/threads/run_threads.h"
#include "weft/measure/rank_setup.h"
#include "weft/pipeline/training_rank.h"

namespace weft {
namespace {

/// A training rank with a step of so many microbatches.
struct TrainedSteps {
  EchoWorld echo{0, 1};
  Plan plan;
  std::unique_ptr<TrainingRank> rank;
  StepBatch batch;
  int64_t num_targets = 0;
  std::vector<double> times;

  void run(at::Device device) {
    const double begin = now_ms();
    rank->step(batch, num_targets, kLearningRate);
    wait_for_device(device);
    times.push_back(now_ms() - begin);
  }
  /// What the end of a step takes, which updates are measured by.
  double update(at::Device device) {
    wait_for_device(device);
    const double begin = now_ms();
    for (StageOptimizer* optimizer : rank->optimizers()) {
      optimizer->local_squared_norm([](const Parameter&, const WeightPiece&) { return 1.0; });
      optimizer->update(kLearningRate, 1);
    }
    wait_for_device(device);
    return now_ms() - begin;
  }

  static constexpr double kLearningRate = 1e-5;
};

Result<std::unique_ptr<TrainedSteps>> make_steps(const Model& model, const BlockShape& shape, int64_t microbatches,
                                                 const MeasureSettings& settings) {
  auto steps = std::make_unique<TrainedSteps>();
  steps->plan = plan_of_step(model, settings.precision, microbatches);
  WEFT_TRY(steps->rank, TrainingRank::create(steps->echo.world(), steps->plan,
                                             {.max_gradient_norm = 1, .seed = {}, .device = settings.device}));
  draw_weights(steps->rank->parameters());
  steps->rank->adopt_values();
  WEFT_TRY(const BlockInputs made, inputs_of_block(model, steps->rank->numbers(), shape));
  for (int64_t i = 0; i < microbatches; ++i) steps->batch.microbatches.push_back(made.inputs);
  steps->num_targets = microbatches * made.inputs.num_targets();
  return steps;
}

/// The embedding, a layer and the head of the llm, each by itself.
struct StepBlocks {
  std::vector<std::unique_ptr<BlockRunner>> runners;
  std::vector<double> times;  ///< of all together

  void run(const MeasureSettings& settings) {
    double sum = 0;
    for (const auto& runner : runners) {
      TimeMarks marks(settings.device);
      runner->run(marks);
      marks.wait();
      sum += runner->passes(marks, settings.copy_bytes_per_ms).front().sum();
    }
    times.push_back(sum);
  }
};

Result<StepBlocks> make_blocks(const Model& model, BlockShape shape, const MeasureSettings& settings) {
  const Module& llm = model.modules.back();
  StepBlocks blocks;
  for (const std::string& name : {llm.entry.name, llm.distinct_layers[llm.layers.front()].name, llm.exit.name}) {
    shape.block = name;
    WEFT_TRY(blocks.runners.emplace_back(),
             BlockRunner::create(
                 {.model = model, .shape = shape, .precision = settings.precision, .device = settings.device}));
  }
  return blocks;
}

/// Steps of few and of many microbatches and their blocks, in turn, so that all see the same machine.
Result<std::optional<StepOverhead>> measure_in_turn(const Model& model, const BlockShape& shape,
                                                    const MeasureSettings& settings) {
  constexpr int64_t kFew = 1, kMany = 5;
  WEFT_TRY(const auto few, make_steps(model, shape, kFew, settings));
  WEFT_TRY(const auto many, make_steps(model, shape, kMany, settings));
  WEFT_TRY(StepBlocks blocks, make_blocks(model, shape, settings));
  std::vector<double> updates;
  const auto run_all = [&] {
    few->run(settings.device);
    many->run(settings.device);
    blocks.run(settings);
    updates.push_back(few->update(settings.device));
  };
  constexpr int kWarmUp = 2;
  for (int i = 0; i < kWarmUp; ++i) run_all();
  few->times.clear();
  many->times.clear();
  blocks.times.clear();
  updates.clear();
  const double start = now_ms();
  do {
    if (settings.stop != nullptr && settings.stop->load()) return std::optional<StepOverhead>();
    run_all();
  } while (!settings.rule.is_enough(few->times, now_ms() - start));
  const double few_ms = median_of(few->times);
  const double microbatch_ms = (median_of(many->times) - few_ms) / static_cast<double>(kMany - kFew);
  return std::optional(
      StepOverhead{.action_ms = std::max(0.0, (microbatch_ms - median_of(blocks.times)) / 2),
                   .step_ms = std::max(0.0, few_ms - static_cast<double>(kFew) * microbatch_ms - median_of(updates))});
}

}  // namespace

Result<std::optional<StepOverhead>> measure_step(const Model& model, int64_t tokens, int64_t ranks,
                                                 const MeasureSettings& settings) {
  const BlockShape shape{.tokens = static_cast<double>(tokens), .sequence_tokens = static_cast<double>(tokens)};
  std::optional<Result<std::optional<StepOverhead>>> measured;
  const auto body = [&](World&) {
    begin_rank(settings.device, settings.num_cores, ranks);
    measured.emplace(measure_in_turn(model, shape, settings));
  };
  free_unused_memory(settings.device);
  if (auto error = run_thread_ranks(1, {}, body)) return *std::move(error);
  return *std::move(measured);
}

}  // namespace weft
