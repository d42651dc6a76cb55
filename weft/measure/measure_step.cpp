#include "weft/measure/measure_step.h"

#include <mutex>

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
    rank->step(batch, num_targets, /*learning_rate=*/1e-5);
    wait_for_device(device);
    times.push_back(now_ms() - begin);
  }
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

}  // namespace

Result<std::optional<StepOverhead>> measure_step(const Model& model, int64_t tokens, const MeasureSettings& settings) {
  const Module& llm = model.modules.back();
  const Block& layer = llm.layer_kinds[llm.layers.front()];
  double blocks_ms = 0;
  BlockShape shape{.tokens = static_cast<double>(tokens), .sequence_tokens = static_cast<double>(tokens)};
  for (const std::string& name : {llm.entry.name, layer.name, llm.exit.name}) {
    shape.block = name;
    WEFT_TRY(const auto block, measure_block(model, shape, settings));
    if (!block) return std::optional<StepOverhead>();
    const BlockMeasurement& found = block->measurement;
    blocks_ms += found.forward_ms + found.backward_input_ms + found.backward_weight_ms;
  }
  std::optional<StepOverhead> overhead;
  std::optional<Error> failed;
  const auto body = [&](World&) {
    begin_rank(settings.device, settings.num_cores, 1);
    constexpr int64_t kFew = 1, kMany = 5;
    auto few = make_steps(model, shape, kFew, settings), many = make_steps(model, shape, kMany, settings);
    if (!few || !many) {
      failed = !few ? few.error() : many.error();
      return;
    }
    for (int i = 0; i < 2; ++i) {
      (*few)->run(settings.device);
      (*many)->run(settings.device);
    }
    (*few)->times.clear();
    (*many)->times.clear();
    const double start = now_ms();
    do {
      if (settings.stop != nullptr && settings.stop->load()) return;
      (*few)->run(settings.device);
      (*many)->run(settings.device);
    } while (!settings.rule.is_enough((*few)->times, now_ms() - start));
    std::vector<double> updates;
    for (int i = 0; i < 5; ++i) {
      wait_for_device(settings.device);
      const double begin = now_ms();
      for (StageOptimizer* optimizer : (*few)->rank->optimizers()) {
        optimizer->local_squared_norm([](const Parameter&, const WeightPiece&) { return 1.0; });
        optimizer->update(/*learning_rate=*/1e-5, 1);
      }
      wait_for_device(settings.device);
      updates.push_back(now_ms() - begin);
    }
    const double few_ms = median_of((*few)->times), many_ms = median_of((*many)->times);
    const double microbatch_ms = (many_ms - few_ms) / static_cast<double>(kMany - kFew);
    overhead =
        StepOverhead{.action_ms = std::max(0.0, (microbatch_ms - blocks_ms) / 2),
                     .step_ms = std::max(0.0, few_ms - static_cast<double>(kFew) * microbatch_ms - median_of(updates))};
  };
  if (auto error = run_thread_ranks(1, {}, body)) return *std::move(error);
  if (failed) return *std::move(failed);
  return overhead;
}

}  // namespace weft
