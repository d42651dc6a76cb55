#include "weft/engine/trainer.h"

#include <chrono>
#include <mutex>

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <torch/version.h>

#include "weft/base/counted.h"
#include "weft/base/file.h"
#include "weft/checkpoint/agreement.h"
#include "weft/comm/failure.h"
#include "weft/comm/run_ranks.h"
#include "weft/engine/core_share.h"
#include "weft/engine/guarded.h"
#include "weft/engine/memory_check.h"
#include "weft/engine/predict.h"
#include "weft/engine/rank_error.h"
#include "weft/engine/run_folder.h"
#include "weft/engine/run_preface.h"
#include "weft/engine/run_start.h"
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

/// Means over the steps of a run but the first.
class Means {
 public:
  void add(const StepMetrics& metrics) {
    if (num_steps_++ == 0) first_ = metrics;
    if (num_steps_ == 1) return;
    ms_ += metrics.step_ms;
    tokens_ += static_cast<double>(metrics.num_tokens);
    flops_share_ += metrics.utilization.value_or(0) * metrics.step_ms;
  }
  void fill(TrainReport& report) const {
    if (num_steps_ == 0) return;
    report.first_loss = first_.loss;
    report.mean_step_ms = num_steps_ == 1 ? first_.step_ms : ms_ / static_cast<double>(num_steps_ - 1);
    report.mean_tokens_per_s = num_steps_ == 1 ? first_.tokens_per_s() : tokens_ / ms_ * 1e3;
    if (!first_.utilization) return;
    report.mean_utilization = num_steps_ == 1 ? first_.utilization : flops_share_ / ms_;
  }

 private:
  int64_t num_steps_ = 0;
  StepMetrics first_;
  double ms_ = 0, tokens_ = 0, flops_share_ = 0;
};

/// Whether rank 0 was asked to stop, heard by all ranks alike.
bool hears_stop(World& world, const std::atomic<bool>* stop) {
  if (stop == nullptr) return false;
  int64_t stops = world.rank() == 0 && stop->load() ? 1 : 0;
  world.all().broadcast(Buffer{.data = &stops, .count = 1, .type = DataType::kInt64}, 0).wait();
  return stops != 0;
}

using Say = std::function<void(const std::string&)>;

/// Tells, on rank 0, what is about to be made.
void say_preface(World& world, const Plan& plan, const TrainConfig& config, const std::optional<Checkpoint>& checkpoint,
                 const Say& say, const Say& show) {
  if (world.rank() != 0) return;
  const Launch launch = detect_launch();
  const RunPreface preface{.plan = plan,
                           .config = config,
                           .launch = launch,
                           .share = share_cores(launch, world.size(), config.threads_per_rank)};
  if (say) {
    for (const std::string& line : preface.lines(checkpoint ? checkpoint->folder.string() : "")) say(line);
  }
  if (show) show("making the ranks and their weights");
}

/// The settings that a run goes on with and did not have before.
std::vector<std::string> changed_settings(const Json& before, const Json& now, const std::string& path = "") {
  std::vector<std::string> changes;
  for (const auto& [key, value] : now.items()) {
    if (!before.contains(key) || before[key] == value) continue;
    const std::string field = path.empty() ? key : path + "." + key;
    if (value.is_object() && before[key].is_object()) {
      for (std::string& change : changed_settings(before[key], value, field)) changes.push_back(std::move(change));
    } else {
      changes.push_back(fmt::format("{} {} instead of {}", field, value.dump(), before[key].dump()));
    }
  }
  return changes;
}

LineFile opened(const std::filesystem::path& path) {
  auto file = LineFile::open(path);
  if (!file) throw RankError(file.error());
  return *std::move(file);
}

RunHeader header_of(const World& world, const TrainConfig& config) {
  const auto today = std::chrono::floor<std::chrono::days>(std::chrono::system_clock::now());
  const std::chrono::year_month_day date(today);
  const CoreShare share = share_cores(detect_launch(), world.size(), config.threads_per_rank);
  return {.software = std::string("LibTorch ") + TORCH_VERSION,
          .device = config.device,
          .device_name = "",
          .date = fmt::format("{:04}-{:02}-{:02}", static_cast<int>(date.year()), static_cast<unsigned>(date.month()),
                              static_cast<unsigned>(date.day())),
          .threads_per_rank = share.threads_per_rank,
          .ranks_here = share.ranks,
          .cores = config.device == "cpu" ? share.cores : 0};
}

/// One rank's run. The report is rank 0's.
Result<TrainReport> train_rank(World& world, const Plan& plan, const TrainConfig& config, const TrainOptions& options,
                               const std::shared_ptr<SharedBatches>& batches) {
  const bool is_first = world.rank() == 0;
  WEFT_TRY(const RunStart start, find_start(world, plan, config, options));
  say_preface(world, plan, config, start.checkpoint, options.say, options.show);
  WEFT_TRY(const std::unique_ptr<TrainingSession> session, TrainingSession::create(world, plan, config,
                                                                                   {.checkpoint = start.checkpoint,
                                                                                    .goes_on = true,
                                                                                    .costs = options.costs,
                                                                                    .batches = batches,
                                                                                    .records = true,
                                                                                    .memory = options.memory}));
  if (auto error = open_run(world, start, plan, config)) return *error;

  TrainReport report{.run_folder = start.folder.path, .first_step = session->num_steps()};
  if (start.checkpoint) report.checkpoint = start.checkpoint->folder;
  std::optional<LineFile> metrics_file, record_file;
  if (is_first) {
    metrics_file = opened(start.folder.metrics());
    record_file = opened(start.folder.steps());
    if (auto error = record_file->append(to_line(header_of(world, config)))) throw RankError(*error);
    if (options.say && options.resumes) {
      options.say(start.checkpoint
                      ? fmt::format("going on from {}", start.checkpoint->folder.string())
                      : fmt::format("{} has no checkpoint yet: beginning again", start.folder.path.string()));
      const std::vector<std::string> changes =
          start.checkpoint ? changed_settings(start.checkpoint->run, to_json(config)) : std::vector<std::string>();
      if (!changes.empty()) options.say(fmt::format("from here on with {}", fmt::join(changes, ", ")));
    }
  }
  if (is_first && options.show) options.show("computing the first step");
  const int64_t interval = config.checkpoints.interval_steps;
  Means means;
  const auto save = [&]() -> std::optional<Error> {
    Result<SavedCheckpoint> saved = session->save(start.folder.checkpoints());
    if (!saved) return saved.error();
    report.checkpoint = saved->folder;
    if (is_first && options.say && saved->warning) options.say(saved->warning->message());
    return std::nullopt;
  };
  bool is_saved = true;
  while (session->num_steps() < config.steps) {
    report.is_stopped = hears_stop(world, options.stop);
    if (report.is_stopped) break;
    WEFT_TRY(StepMetrics metrics, session->step());
    means.add(metrics);
    if (is_first) {
      if (auto error = metrics_file->append(to_json(metrics).dump() + "\n")) throw RankError(*error);
      if (const auto& record = session->last_record()) {
        if (auto error = record_file->append(to_line(*record))) throw RankError(*error);
      }
      if (options.on_step) options.on_step(metrics, config.steps);
    }
    report.last = std::move(metrics);
    const int64_t done = session->num_steps();
    is_saved = interval > 0 && (done % interval == 0 || done == config.steps);
    if (is_saved) {
      if (auto error = save()) return *std::move(error);
    }
  }
  if (interval > 0 && !is_saved) {
    if (auto error = save()) return *std::move(error);
  }
  report.last_step = session->num_steps();
  means.fill(report);
  if (!options.trace.empty() && report.last_step > report.first_step) {
    const Timeline timeline = gather_timeline(world.all(), session->last_events(), session->last_start_ms());
    if (is_first) {
      const auto error = write_file(options.trace, to_chrome_trace(timeline));
      if (error && options.say) options.say(error->message());
    }
  }
  return report;
}

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
  const auto batches = std::make_shared<SharedBatches>();
  return on_ranks<TrainReport>(plan_, config_, options.memory, options.say,
                               [&](World& world) { return train_rank(world, plan_, config_, options, batches); });
}

Result<std::optional<TrainReport>> Trainer::finetune(const std::filesystem::path& weights,
                                                     const TrainOptions& options) {
  TrainConfig config = config_;
  config.weights = weights;
  return Trainer(plan_, std::move(config)).train(options);
}

Result<std::optional<EvalReport>> Trainer::evaluate(const std::filesystem::path& checkpoint,
                                                    const EvalOptions& options) {
  return on_ranks<EvalReport>(plan_, config_, options.memory, options.say, [&](World& world) -> Result<EvalReport> {
    std::optional<Checkpoint> start;
    if (!checkpoint.empty()) {
      WEFT_TRY(start, read_checkpoint_on_ranks(world, checkpoint));
    }
    say_preface(world, plan_, config_, start, options.say, options.show);
    WEFT_TRY(const std::unique_ptr<TrainingSession> session,
             TrainingSession::create(world, plan_, config_, {.checkpoint = start, .memory = options.memory}));
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
  return Trainer(request.plan, *std::move(config))
      .evaluate(request.checkpoint, {.memory = request.memory, .say = request.say, .show = request.show});
}

}  // namespace weft
