#include "weft/engine/trainer.h"

#include <fmt/format.h>

#include "weft/base/counted.h"
#include "weft/engine/on_ranks.h"
#include "weft/engine/predict.h"
#include "weft/engine/program_check.h"
#include "weft/engine/resumed_run.h"
#include "weft/engine/run_loop.h"
#include "weft/engine/run_start.h"
#include "weft/engine/training_session.h"

namespace weft {

Result<std::optional<TrainReport>> Trainer::train(const TrainOptions& options) {
  const auto counted_steps = [&]() -> Result<TrainConfig> {
    if (config_.epochs == 0) return config_;
    const auto batches = switches_->batches_after(0, config_.data_threads);
    WEFT_TRY(const RunSamples samples,
             batches->samples([&] { return open_run_samples(plan_, config_, batches->workers()); }));
    return with_steps(config_, samples.trained->samples_of(config_.epochs), plan_.workload.global_batch_samples);
  };
  const Result<TrainConfig> config = counted_steps();
  if (!config) return detect_launch().is_speaker() ? config.error() : told_elsewhere(config.error().kind);
  // While a checkpoint is saved beside the next steps, the host holds a copy of it; after the last step it does not.
  TrainOptions counted = options;
  const TrainConfig::Checkpoints& saved = config->checkpoints;
  const bool saves_beside_steps = saved.interval_steps > 0 && (saved.interval_steps < config->steps || saved.keep_best);
  if (saves_beside_steps && config->device == "cpu") {
    for (RankNeed& need : counted.memory) need.states_bytes += need.snapshot_bytes;
  }
  RunLoop run(plan_, *config, counted, *switches_);
  return on_ranks<TrainReport>(plan_, *config, counted.memory, options.say,
                               [&](World& world) { return run.run_rank(world); });
}

std::optional<Error> Trainer::switch_plan(Plan plan, SampleCosts costs) {
  if (auto error = check_switch(plan_, plan, config_, costs)) return error;
  switches_->ask(std::move(plan), std::move(costs));
  return std::nullopt;
}

Result<std::optional<TrainReport>> Trainer::finetune(const std::filesystem::path& weights,
                                                     const TrainOptions& options) {
  TrainConfig config = config_;
  config.weights = weights;
  Trainer tuned(plan_, std::move(config));
  tuned.switches_ = switches_;  // who asks this one for another plan means that run
  return tuned.train(options);
}

Result<std::optional<EvalReport>> Trainer::evaluate(const std::filesystem::path& checkpoint,
                                                    const EvalOptions& options) {
  const auto batches = std::make_shared<SharedBatches>(config_.data_threads);
  return on_ranks<EvalReport>(plan_, config_, options.memory, options.say, [&](World& world) -> Result<EvalReport> {
    std::optional<UnlimitedWaits> patience(std::in_place, world.all());  // until all is loaded
    std::optional<Checkpoint> start;
    if (!checkpoint.empty()) {
      WEFT_TRY(start, read_checkpoint_on_ranks(world, checkpoint, kWayToEvaluate));
    }
    say_preface(world, plan_, config_, start, options.say, options.show);
    WEFT_TRY(const std::unique_ptr<TrainingSession> session,
             TrainingSession::create(world, plan_, config_,
                                     {.checkpoint = start, .batches = batches, .memory = options.memory}));
    patience.reset();
    if (world.rank() == 0 && options.say && !session->packing().empty()) options.say(session->packing());
    if (world.rank() == 0 && options.show)
      options.show(fmt::format("evaluating {}", counted(config_.evaluation_batches, "batch")));
    return session->evaluate(config_.evaluation_batches);
  });
}

Result<PredictReport> Trainer::predict(const std::filesystem::path& run_folder, PredictRequest request) {
  request.run_folder = run_folder;
  return weft::predict(request);
}

Result<std::optional<TrainReport>> train(const TrainRequest& request) {
  Result<TrainConfig> config = read_train_config_file(request.config_file);
  if (!config) return detect_launch().is_speaker() ? config.error() : told_elsewhere(config.error().kind);
  if (request.plan.model.numbers.program) {
    if (const auto error = find_wrong_custom(request.plan.model))
      return detect_launch().is_speaker() ? *error : told_elsewhere(error->kind);
  }
  return Trainer(request.plan, *std::move(config))
      .train({.run_folder = request.run_folder,
              .resumes = request.resumes,
              .resume_from = request.resume_from,
              .trace = request.trace,
              .costs = request.costs,
              .memory = request.memory,
              .stop = request.stop,
              .on_step = request.on_step,
              .say = request.say,
              .show = request.show});
}

Result<std::optional<EvalReport>> evaluate(const EvalRequest& request) {
  Result<TrainConfig> config = read_train_config_file(request.config_file);
  if (!config) return detect_launch().is_speaker() ? config.error() : told_elsewhere(config.error().kind);
  if (!request.data.empty()) {
    auto settings = read_data_settings_file(request.data);
    if (!settings) return detect_launch().is_speaker() ? settings.error() : told_elsewhere(settings.error().kind);
    if (!config->data && config->weights.empty()) {
      const Error error{.source = config->source,
                        .field = "weights",
                        .problem = "is missing, and so is data: nothing says which tokenizer --data is read with",
                        .advice = "Give the model's folder in one of them."};
      return detect_launch().is_speaker() ? error : told_elsewhere(error.kind);
    }
    config->evaluation.data =
        TrainData{.settings = *std::move(settings), .model = config->data ? config->data->model : config->weights};
  }
  return Trainer(request.plan, *std::move(config))
      .evaluate(request.checkpoint, {.memory = request.memory, .say = request.say, .show = request.show});
}

}  // namespace weft
