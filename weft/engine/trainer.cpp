#include "weft/engine/trainer.h"

#include <mutex>

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include "weft/base/counted.h"
#include "weft/comm/failure.h"
#include "weft/comm/run_ranks.h"
#include "weft/engine/core_share.h"
#include "weft/engine/guarded.h"
#include "weft/engine/memory_check.h"
#include "weft/engine/predict.h"
#include "weft/engine/rank_error.h"
#include "weft/engine/run_loop.h"
#include "weft/engine/run_start.h"
#include "weft/engine/training_session.h"
#include "weft/tensor/deterministic.h"
#include "weft/tensor/rank_threads.h"

namespace weft {
namespace {

/// An error without words: another process of the run shows it.
Error told_elsewhere(ErrorKind kind) {
  return {.kind = kind};
}

using Say = std::function<void(const std::string&)>;

/// Runs something once on every rank that this process stands for. The result is rank 0's; errors are of all ranks.
template <typename Value, typename Body>
Result<std::optional<Value>> on_ranks(const Plan& plan, const TrainConfig& config, const std::vector<RankNeed>& memory,
                                      const Say& say, const Body& body) {
  const Launch launch = detect_launch();
  if (auto error = check_threads(config, usable_cores()))
    return launch.is_speaker() ? *std::move(error) : told_elsewhere(error->kind);
  // Before there are threads, of which a plan may have thousands; processes meet first, so that none waits in vain.
  if (launch.kind == Launch::Kind::kThreads && config.device == "cpu") {
    if (auto error = check_rank_memory(memory, ranks_of_host(launch, plan.world_size), at::kCPU))
      return *std::move(error);
  }
  RunOptions options{.size = plan.world_size};
  WEFT_TRY(options.comm, comm_options_from_environment());
  if (say) options.report = say;
  std::mutex guard;
  std::optional<Value> value;
  std::optional<Error> error;
  bool is_own = false;  // of this process alone
  const auto run = [&](World& world) {
    use_rank_threads(static_cast<int>(share_cores(launch, world.size(), config.threads_per_rank).threads_per_rank));
    // LibTorch's messages are stack traces; what a rank dies of is told in our words.
    Result<Value> result = [&]() -> Result<Value> {
      try {
        return body(world);
      } catch (const c10::Error& failure) {
        throw RankError(explain_libtorch_error(failure, kMemoryAdvice));
      } catch (const std::bad_alloc&) {
        throw RankError(memory_ran_out("", kMemoryAdvice));
      }
    }();
    const std::lock_guard lock(guard);
    if (!result) {
      if (!error) error = std::move(result).error();
    } else if (world.rank() == 0) {
      value = *std::move(result);
    }
  };
  set_deterministic(config.is_deterministic);
  try {
    if (auto failed = run_ranks(options, run)) {
      error = std::move(failed);
      is_own = launch.size == plan.world_size;  // else all processes find the same: that they are too many or too few
    }
  } catch (const RankFailure& failure) {
    if (error && failure.should_print()) return *error;  // why a rank of this process did not go on
    if (!failure.should_print()) return told_elsewhere(ErrorKind::kJob);
    return Error{.kind = ErrorKind::kJob, .problem = failure.what()};
  }
  if (!error) return value;
  return launch.is_speaker() || is_own ? *error : told_elsewhere(error->kind);
}

}  // namespace

Result<std::optional<TrainReport>> Trainer::train(const TrainOptions& options) {
  const Result<TrainConfig> config = with_steps(config_, plan_);
  if (!config) return detect_launch().is_speaker() ? config.error() : told_elsewhere(config.error().kind);
  // While a checkpoint is saved, the host holds a copy of it.
  TrainOptions counted = options;
  if (config->checkpoints.interval_steps > 0 && config->device == "cpu") {
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
    std::optional<Checkpoint> start;
    if (!checkpoint.empty()) {
      WEFT_TRY(start, read_checkpoint_on_ranks(world, checkpoint));
    }
    say_preface(world, plan_, config_, start, options.say, options.show);
    WEFT_TRY(const std::unique_ptr<TrainingSession> session,
             TrainingSession::create(world, plan_, config_,
                                     {.checkpoint = start, .batches = batches, .memory = options.memory}));
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
