#include "weft/engine/trainer.h"

#include <mutex>
#include <thread>

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include "weft/base/file.h"
#include "weft/checkpoint/agreement.h"
#include "weft/checkpoint/export_checkpoint.h"
#include "weft/comm/failure.h"
#include "weft/comm/run_ranks.h"
#include "weft/engine/guarded.h"
#include "weft/engine/predict.h"
#include "weft/engine/rank_error.h"
#include "weft/engine/run_folder.h"
#include "weft/engine/step_timeline.h"
#include "weft/engine/training_session.h"
#include "weft/plan/plan_json.h"
#include "weft/tensor/rank_threads.h"

namespace weft {
namespace {

/// An error without words: another process of the run shows it.
Error told_elsewhere(ErrorKind kind) {
  return {.kind = kind};
}

/// What rank 0 has decided, on all ranks.
std::string broadcast_text(Group& group, std::string text) {
  auto length = static_cast<int64_t>(text.size());
  group.broadcast(Buffer{.data = &length, .count = 1, .type = DataType::kInt64}, 0).wait();
  text.resize(static_cast<size_t>(length));
  if (length > 0) group.broadcast(Buffer{.data = text.data(), .count = length, .type = DataType::kUint8}, 0).wait();
  return text;
}

/// A checkpoint by its own folder or by that of its run; the newest of a run.
Result<std::filesystem::path> find_checkpoint(const std::filesystem::path& given) {
  std::error_code ignored;
  if (std::filesystem::exists(given / "checkpoint.json", ignored)) return given;
  WEFT_TRY(const std::optional<std::filesystem::path> newest, newest_checkpoint(RunFolder{given}.checkpoints()));
  if (newest) return *newest;
  const bool is_there = std::filesystem::is_directory(given, ignored);
  return Error{.source = given.string(),
               .problem = is_there ? "has no checkpoint" : "is no folder",
               .advice = "Give the folder of a run that has saved checkpoints, or one of these."};
}

/// Where a run starts: the same on all ranks.
struct Start {
  RunFolder folder;
  std::optional<Checkpoint> checkpoint;
};

Result<Start> find_start(World& world, const Plan& plan, const TrainConfig& config, const TrainOptions& options) {
  // One rank looks, so that all see the same even while the folders change.
  std::string run_folder, checkpoint;
  const auto look = [&]() -> std::optional<Error> {
    if (world.rank() != 0) return std::nullopt;
    std::filesystem::path folder = options.run_folder.empty() ? config.run_folder : options.run_folder;
    if (options.resumes) {
      std::filesystem::path from = options.resume_from.empty() ? folder : options.resume_from;
      if (from.empty()) {
        return Error{.source = "--resume",
                     .problem = "has no folder to go on from",
                     .advice = "Give it a run's folder, or give run_folder in the configuration."};
      }
      const auto found = find_checkpoint(from);
      if (!found) return found.error();
      checkpoint = found->string();
      // The run goes on where it is: .../checkpoints/step-00000010.
      if (folder.empty()) folder = std::filesystem::weakly_canonical(*found).parent_path().parent_path();
    }
    if (folder.empty()) folder = new_run_folder(plan.model.name);
    run_folder = folder.string();
    return std::nullopt;
  };
  if (auto error = first_error(world.all(), look())) return *error;
  Start start{.folder = {broadcast_text(world.all(), run_folder)}};
  checkpoint = broadcast_text(world.all(), checkpoint);
  if (checkpoint.empty()) return start;
  auto read = read_checkpoint(checkpoint);
  if (auto error = first_error(world.all(), read ? std::nullopt : std::optional(read.error()))) return *error;
  start.checkpoint = *std::move(read);
  return start;
}

/// Rank 0 makes the folder ready to be written.
std::optional<Error> open_folder(World& world, const Start& start, const Plan& plan, const TrainConfig& config) {
  std::optional<Error> error;
  if (world.rank() == 0) {
    const bool is_old = start.checkpoint && std::filesystem::exists(start.folder.metrics());
    error = is_old             ? rewind_metrics(start.folder, start.checkpoint->step)
            : start.checkpoint ? std::nullopt
                               : begin_run(start.folder, plan_to_text(plan), to_json(config).dump(2) + "\n");
    if (!error && start.checkpoint && !is_old) {
      std::error_code failure;
      std::filesystem::create_directories(start.folder.path, failure);
    }
  }
  return first_error(world.all(), error);
}

/// Means over the steps of a run but the first.
class Means {
 public:
  void add(const StepMetrics& metrics) {
    if (num_steps_++ == 0) first_ = metrics;
    if (num_steps_ == 1) return;
    ms_ += metrics.step_ms;
    tokens_ += static_cast<double>(metrics.num_tokens);
    flops_share_ += metrics.utilisation.value_or(0) * metrics.step_ms;
  }
  void fill(TrainReport& report) const {
    if (num_steps_ == 0) return;
    report.first_loss = first_.loss;
    report.mean_step_ms = num_steps_ == 1 ? first_.step_ms : ms_ / static_cast<double>(num_steps_ - 1);
    report.mean_tokens_per_s = num_steps_ == 1 ? first_.tokens_per_s() : tokens_ / ms_ * 1e3;
    if (!first_.utilisation) return;
    report.mean_utilisation = num_steps_ == 1 ? first_.utilisation : flops_share_ / ms_;
  }

 private:
  int64_t num_steps_ = 0;
  StepMetrics first_;
  double ms_ = 0, tokens_ = 0, flops_share_ = 0;
};

/// One rank's run. The report is rank 0's.
Result<TrainReport> train_rank(World& world, const Plan& plan, const TrainConfig& config, const TrainOptions& options) {
  const bool is_first = world.rank() == 0;
  WEFT_TRY(const Start start, find_start(world, plan, config, options));
  WEFT_TRY(const std::unique_ptr<TrainingSession> session,
           TrainingSession::create(world, plan, config, start.checkpoint));
  if (auto error = open_folder(world, start, plan, config)) return *error;

  TrainReport report{.run_folder = start.folder.path, .first_step = session->num_steps()};
  if (start.checkpoint) report.checkpoint = start.checkpoint->folder;
  std::optional<MetricsFile> metrics_file;
  if (is_first) {
    auto file = MetricsFile::open(start.folder);
    if (!file) throw RankError(file.error());
    metrics_file = *std::move(file);
    if (options.say && start.checkpoint)
      options.say(fmt::format("going on from {}", start.checkpoint->folder.string()));
  }
  const int64_t interval = config.checkpoints.interval_steps;
  Means means;
  while (session->num_steps() < config.steps) {
    WEFT_TRY(StepMetrics metrics, session->step());
    means.add(metrics);
    if (is_first) {
      if (auto error = metrics_file->append(metrics)) throw RankError(*error);
      if (options.on_step) options.on_step(metrics, config.steps);
    }
    report.last = std::move(metrics);
    const int64_t done = session->num_steps();
    if (interval > 0 && (done % interval == 0 || done == config.steps)) {
      WEFT_TRY(const SavedCheckpoint saved, session->save(start.folder.checkpoints()));
      report.checkpoint = saved.folder;
      if (is_first && options.say && saved.warning) options.say(saved.warning->message());
    }
  }
  report.last_step = session->num_steps();
  means.fill(report);
  if (!options.trace.empty() && report.last_step > report.first_step) {
    const Timeline timeline = gather_timeline(world.all(), session->last_events(), session->last_start_ms());
    if (is_first) {
      if (auto error = write_file(options.trace, to_chrome_trace(timeline))) throw RankError(*error);
    }
  }
  return report;
}

/// Runs something once on every rank that this process stands for. The result is rank 0's; errors are of all ranks.
template <typename Value, typename Body>
Result<std::optional<Value>> on_ranks(const Plan& plan, const TrainConfig& config,
                                      const std::function<void(const std::string&)>& say, const Body& body) {
  const Launch launch = detect_launch();
  RunOptions options{.size = plan.world_size};
  WEFT_TRY(options.comm, comm_options_from_environment());
  if (say) options.report = say;
  std::mutex guard;
  std::optional<Value> value;
  std::optional<Error> error;
  const auto run = [&](World& world) {
    const auto cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
    const auto ranks = static_cast<int>(world.size());
    use_rank_threads(config.threads_per_rank > 0 ? static_cast<int>(config.threads_per_rank)
                                                 : threads_per_rank(cores, ranks));
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
  try {
    if (auto failed = run_ranks(options, run)) error = std::move(failed);
  } catch (const RankFailure& failure) {
    if (!failure.should_print()) return told_elsewhere(ErrorKind::kJob);
    return Error{.kind = ErrorKind::kJob, .problem = failure.what()};
  }
  if (!error) return value;
  return launch.rank == 0 ? *error : told_elsewhere(error->kind);
}

}  // namespace

Result<std::optional<TrainReport>> Trainer::train(const TrainOptions& options) {
  return on_ranks<TrainReport>(plan_, config_, options.say,
                               [&](World& world) { return train_rank(world, plan_, config_, options); });
}

Result<std::optional<TrainReport>> Trainer::finetune(const std::filesystem::path& weights,
                                                     const TrainOptions& options) {
  TrainConfig config = config_;
  config.weights = weights;
  return Trainer(plan_, std::move(config)).train(options);
}

Result<std::optional<EvalReport>> Trainer::evaluate(const std::filesystem::path& checkpoint) {
  return on_ranks<EvalReport>(plan_, config_, {}, [&](World& world) -> Result<EvalReport> {
    std::optional<Checkpoint> start;
    if (!checkpoint.empty()) {
      const auto read = [&]() -> Result<Checkpoint> {
        WEFT_TRY(const std::filesystem::path folder, find_checkpoint(checkpoint));
        return read_checkpoint(folder);
      };
      Result<Checkpoint> found = read();
      if (auto error = first_error(world.all(), found ? std::nullopt : std::optional(found.error()))) return *error;
      start = *std::move(found);
    }
    WEFT_TRY(const std::unique_ptr<TrainingSession> session, TrainingSession::create(world, plan_, config_, start));
    return session->evaluate(config_.evaluation_batches);
  });
}

Result<PredictReport> Trainer::predict(const std::filesystem::path& run_folder, PredictRequest request) {
  WEFT_TRY(const std::filesystem::path folder, find_checkpoint(run_folder));
  WEFT_TRY(const Checkpoint checkpoint, read_checkpoint(folder));
  request.model = run_folder / "model" / folder.filename();
  std::error_code ignored;
  const bool is_there = std::filesystem::exists(request.model / "config.json", ignored);
  if (!is_there) {
    if (auto error = export_checkpoint(checkpoint, request.model)) return *error;
  }
  return weft::predict(request);
}

Result<std::optional<TrainReport>> train(const TrainRequest& request) {
  WEFT_TRY(TrainConfig config, read_train_config_file(request.config_file));
  return Trainer(request.plan, std::move(config))
      .train({.run_folder = request.run_folder,
              .resumes = request.resumes,
              .resume_from = request.resume_from,
              .trace = request.trace,
              .on_step = request.on_step,
              .say = request.say});
}

Result<std::optional<EvalReport>> evaluate(const EvalRequest& request) {
  WEFT_TRY(TrainConfig config, read_train_config_file(request.config_file));
  return Trainer(request.plan, std::move(config)).evaluate(request.checkpoint);
}

}  // namespace weft
