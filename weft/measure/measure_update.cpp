#include "weft/measure/measure_update.h"

#include <mutex>

#include <ATen/core/grad_mode.h>

#include "weft/base/clock.h"
#include "weft/comm/threads/run_threads.h"
#include "weft/meaning/usual_precision.h"
#include "weft/measure/rank_setup.h"
#include "weft/pipeline/tensor_type.h"

namespace weft {
namespace {

/// A norm and an update, as a step ends with them.
void update_once(TrainedStage& stage) {
  const auto all = [](const Parameter&, const WeightPiece&) { return 1.0; };
  for (const StageOptimizer* optimizer : stage.optimizers()) optimizer->local_squared_norm(all);
  constexpr double kLearningRate = 1e-4;
  for (StageOptimizer* optimizer : stage.optimizers()) optimizer->update(kLearningRate, 1);
}

/// Gradients as after a backward.
void draw_gradients(TrainedStage& stage) {
  const at::NoGradGuard no_graph;
  for (StageOptimizer* optimizer : stage.optimizers()) {
    optimizer->begin_step();
    optimizer->start_reduce();
    optimizer->finish_reduce();
    for (const StageParameter& own : optimizer->parameters()) {
      constexpr double kDeviation = 1e-3;
      optimizer->reduced_gradients(*own.parameter).normal_(0, kDeviation);
    }
  }
}

}  // namespace

double state_bytes_of_layer(const Model& model, Precision precision) {
  const Module& llm = model.modules.back();
  const PrecisionPlan precisions = usual_precision(precision);
  // A weight, a gradient, a master weight and two moments.
  const double bytes = num_bytes(precisions.compute) + num_bytes(precisions.reduce) + 3 * num_bytes(precisions.master);
  double most = 0;
  for (const Block& kind : llm.distinct_layers)
    most = std::max(most, static_cast<double>(num_parameters(kind)) * bytes);
  return most;
}

Result<std::optional<UpdateMeasurement>> measure_update(const Model& model, int64_t num_layers, int64_t busy_ranks,
                                                        const MeasureSettings& settings) {
  const Plan plan = plan_of_layers(model, settings.precision, num_layers);
  WEFT_TRY(const ModelNumbers numbers, numbers_to_run(model));
  const int64_t ranks = settings.device.is_cpu() ? busy_ranks : 1;
  std::mutex guard;
  std::optional<Error> failed;
  std::optional<UpdateMeasurement> measured;
  const auto body = [&](World& busy) {
    begin_rank(settings.device, settings.num_cores, ranks);
    // The stage in the middle of three.
    EchoWorld echo(1, plan.world_size);
    const TrainingSettings training{.seed = {}, .device = settings.device};
    const ModuleMaking making{
        .world = echo.world(),
        .plan = plan,
        .numbers = numbers,
        .settings = training,
        .options = at::TensorOptions().dtype(tensor_type(settings.precision)).device(settings.device)};
    auto module = make_module(making, 0);
    if (!module) {
      const std::lock_guard lock(guard);
      failed = std::move(module).error();
      return;
    }
    TrainedStage& stage = (*module)->stages.front();
    draw_gradients(stage);
    std::vector<double> times;
    const double start = now_ms();
    int64_t state = 0;  // 1: known, 2: stopped
    update_once(stage);
    while (state == 0) {
      busy.all().barrier().wait();
      wait_for_device(settings.device);
      const double begin = now_ms();
      update_once(stage);
      wait_for_device(settings.device);
      times.push_back(now_ms() - begin);
      if (settings.rule.is_enough(times, now_ms() - start)) state = 1;
      if (settings.stop != nullptr && settings.stop->load()) state = 2;
      busy.all().broadcast(Buffer{.data = &state, .count = 1, .type = DataType::kInt64}, 0).wait();
    }
    if (busy.rank() != 0 || state == 2) return;
    int64_t elements = 0;
    for (const ParameterPtr& parameter : stage.model->parameters()) elements += parameter->value.numel();
    const MedianEstimate estimate = estimate_median(times);
    const std::lock_guard lock(guard);
    measured = UpdateMeasurement{.busy_ranks = busy_ranks,
                                 .elements = static_cast<double>(elements),
                                 .ms = estimate.median,
                                 .sureness = estimate.sureness};
  };
  free_unused_memory(settings.device);
  if (auto error = run_thread_ranks(ranks, {}, body)) return *std::move(error);
  if (failed) return *std::move(failed);
  return measured;
}

}  // namespace weft
