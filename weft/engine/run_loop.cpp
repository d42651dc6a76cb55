#include "weft/engine/run_loop.h"

#include <chrono>

#include <fmt/format.h>
#include <torch/version.h>

#include "weft/base/file.h"
#include "weft/checkpoint/agreement.h"
#include "weft/engine/core_share.h"
#include "weft/engine/evaluations.h"
#include "weft/engine/event_file.h"
#include "weft/engine/metrics_hook.h"
#include "weft/engine/rank_error.h"
#include "weft/engine/resumed_run.h"
#include "weft/engine/run_folder.h"
#include "weft/engine/run_preface.h"
#include "weft/engine/run_start.h"
#include "weft/engine/skipped_samples.h"
#include "weft/engine/step_timeline.h"
#include "weft/engine/training_session.h"
#include "weft/plan/plan_json.h"

namespace weft {
namespace {

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

LineFile opened(const std::filesystem::path& path) {
  auto file = LineFile::open(path);
  if (!file) throw RankError(file.error());
  return *std::move(file);
}

RunHeader header_of(const World& world, const Plan& plan, const TrainConfig& config) {
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
          .cores = config.device == "cpu" ? share.cores : 0,
          .plan = work_hash(plan)};
}

/// One rank between the first step and the last.
class RankRun {
 public:
  RankRun(World& world, const Plan& plan, const TrainConfig& config, const TrainOptions& options,
          PlanSwitches& switches, const RunStart& start, TrainingSession& session)
      : world_(world),
        plan_(&plan),
        config_(config),
        options_(options),
        switches_(switches),
        start_(start),
        session_(session),
        report_{.run_folder = start.folder.path, .first_step = session.num_steps()},
        saved_step_(session.num_steps()),
        evaluations_(config.evaluation) {
    if (start.checkpoint) {
      report_.checkpoint = start.checkpoint->folder;
      evaluations_.restore(start.checkpoint->run, start.checkpoint->step);
      if (start.is_own && evaluations_.best()) linked_step_ = evaluations_.best()->step;
    }
    if (!is_first()) return;
    metrics_file_ = opened(start.folder.metrics());
    record_file_ = opened(start.folder.steps());
    write_header();
    auto events = EventFile::create(start.folder.events(), session.num_steps());
    if (!events) throw RankError(events.error());
    events_ = *std::move(events);
    if (config.on_metrics.empty()) return;
    auto hook = MetricsHook::start(config.on_metrics);
    if (!hook) throw RankError(hook.error());
    hook_ = *std::move(hook);
  }

  Result<TrainReport> run() {
    say_how_it_goes_on();
    if (is_first() && options_.show) options_.show("computing the first step");
    while (session_.num_steps() < config_.steps && !evaluations_.ends_run()) {
      const int64_t orders = hear_orders();
      report_.is_stopped = (orders & kStop) != 0;
      if (report_.is_stopped) break;
      if ((orders & kSwitch) != 0) {
        if (auto error = switch_plan()) return *std::move(error);
      }
      Result<StepMetrics> metrics = session_.step();
      if (!metrics) {
        write_skipped(1);
        return keep_good_state(std::move(metrics).error());
      }
      means_.add(*metrics);
      write_down(*metrics);
      report_.last = *std::move(metrics);
      if (auto error = poll_save()) return *std::move(error);
      const int64_t done = session_.num_steps();
      // Before it is saved, so that a run which goes on from here knows of it.
      bool is_best = false;
      if (evaluations_.is_due(done, config_.steps)) {
        WEFT_TRY(is_best, evaluate());
      }
      const bool is_saved_now = interval() > 0 && (done % interval() == 0 || (is_best && keeps_best()));
      if (is_saved_now && done < config_.steps) {
        if (auto error = begin_save()) return *std::move(error);
      }
    }
    report_.is_early = session_.num_steps() < config_.steps && evaluations_.ends_run();
    if (auto error = save_the_rest()) return *std::move(error);
    return end();
  }

 private:
  static constexpr int64_t kStop = 1, kSwitch = 2;

  bool is_first() const { return world_.rank() == 0; }
  int64_t interval() const { return config_.checkpoints.interval_steps; }
  bool keeps_best() const { return config_.checkpoints.keep_best; }
  void say(const std::string& line) const {
    if (is_first() && options_.say) options_.say(line);
  }

  void say_how_it_goes_on() const {
    if (!is_first() || !options_.say) return;
    if (!start_.claim->is_locked())
      say(fmt::format("note: {} is on a file system without locks: see that no other run writes there",
                      start_.folder.path.string()));
    if (!options_.resumes) return;
    if (!start_.checkpoint) {
      say(fmt::format("{} has no checkpoint yet: beginning again", start_.folder.path.string()));
      return;
    }
    say(fmt::format("going on from {}", start_.checkpoint->folder.string()));
    std::vector<std::string> changes = changes_of_plan(start_.checkpoint->plan, *plan_);
    for (std::string& change : changes_of_config(Evaluations::settings_in(start_.checkpoint->run), to_json(config_)))
      changes.push_back(std::move(change));
    constexpr size_t kOfOneLine = 3;
    if (changes.size() > kOfOneLine) {
      say(fmt::format("from here on with {} changes:\n  {}", changes.size(), fmt::join(changes, "\n  ")));
    } else if (!changes.empty()) {
      say(fmt::format("from here on with {}", fmt::join(changes, ", ")));
    }
  }

  /// What any rank was asked, heard by all ranks alike.
  int64_t hear_orders() {
    const UnlimitedWaits patience(world_.all());  // for the first rank, which writes files between steps
    int64_t orders = options_.stop != nullptr && options_.stop->load() ? kStop : 0;
    if (is_first()) {
      next_ = switches_.take();
      if (next_) orders |= kSwitch;
    }
    world_.all().all_reduce(Buffer{.data = &orders, .count = 1, .type = DataType::kInt64}, Reduction::kMax).wait();
    // A stop of one rank and a switch of another: the run ends.
    return (orders & kSwitch) != 0 && hears_stop() ? kStop : orders;
  }

  bool hears_stop() {
    int64_t stops = options_.stop != nullptr && options_.stop->load() ? 1 : 0;
    world_.all().all_reduce(Buffer{.data = &stops, .count = 1, .type = DataType::kInt64}, Reduction::kMax).wait();
    return stops != 0;
  }

  std::optional<Error> switch_plan() {
    const UnlimitedWaits patience(world_.all());
    std::string text = next_ ? plan_to_text(next_->plan) : "";
    text = broadcast_text(world_.all(), std::move(text));
    const auto document = parse_document(text, "the plan that the run goes on by", Syntax::kJson);
    if (!document) return document.error();
    auto plan = read_plan(*document);
    if (!plan) return plan.error();
    const bool shares_memory = detect_launch().kind == Launch::Kind::kThreads;
    const SampleCosts costs = shares_memory ? switches_.taken()->costs : SampleCosts();
    if (plan->balance != Balance::kNone && !costs.is_given()) {
      return Error{.field = "balance",
                   .problem = "is not none, and processes cannot hand each other the costs to balance by",
                   .advice = "Switch to a plan without it."};
    }
    const std::vector<std::string> changes = changes_of_plan(*plan_, *plan);
    const auto next = std::make_shared<const Plan>(*std::move(plan));
    if (auto error = session_.switch_plan(next, costs, switches_.batches_after(++num_switches_, config_.data_threads)))
      return error;
    running_ = next;
    plan_ = running_.get();
    if (is_first()) {
      if (auto error = write_file(start_.folder.plan(), plan_to_text(*plan_))) throw RankError(*error);
      write_header();
    }
    world_.all().barrier().wait();  // the first rank has written files
    say(fmt::format("after step {} with {}", session_.num_steps(), fmt::join(changes, ", ")));
    return std::nullopt;
  }

  /// Before the steps of a plan, so that they are held against that one.
  void write_header() {
    if (auto error = record_file_->append(to_line(header_of(world_, *plan_, config_)))) throw RankError(*error);
  }

  void write_down(const StepMetrics& metrics) {
    if (!is_first()) return;
    const std::string line = to_json(metrics).dump() + "\n";
    if (auto error = metrics_file_->append(line)) throw RankError(*error);
    if (auto error = events_->add(metrics.step, scalars_of(metrics))) throw RankError(*error);
    tell_hook(line);
    if (const auto& record = session_.last_record()) {
      if (auto error = record_file_->append(to_line(*record))) throw RankError(*error);
    }
    write_skipped();
    if (options_.on_step) options_.on_step(metrics, config_.steps);
  }

  /// What the newest step could not use, also where it was not taken because that is too much.
  void write_skipped(int64_t ahead = 0) {
    if (!is_first()) return;
    for (const SkippedSample& skipped : session_.last_skipped()) {
      if (!skipped_file_) skipped_file_ = opened(start_.folder.skipped());
      if (auto error = skipped_file_->append(to_line(skipped, session_.num_steps() + ahead))) throw RankError(*error);
    }
  }

  void tell_hook(const std::string& line) {
    if (!hook_) return;
    if (const auto note = hook_->send(line)) say("note: " + *note);
  }

  /// Whether the loss is the lowest so far.
  Result<bool> evaluate() {
    const int64_t step = session_.num_steps();
    if (is_first() && options_.show) options_.show(fmt::format("evaluating after step {}", step));
    WEFT_TRY(const EvalReport report, session_.evaluate(config_.evaluation_batches));
    const bool is_best = evaluations_.add(step, report.loss);
    report_.evaluated = Evaluated{.step = step, .loss = report.loss};
    if (!is_first()) return is_best;
    if (!evaluations_file_) evaluations_file_ = opened(start_.folder.evaluations());
    const Json line = {{"step", step},
                       {"loss", report.loss},
                       {"perplexity", report.perplexity()},
                       {"target_tokens", report.num_targets},
                       {"batches", report.num_batches},
                       {"ms", report.ms},
                       {"is_best", is_best}};
    if (auto error = evaluations_file_->append(line.dump() + "\n")) throw RankError(*error);
    if (auto error =
            events_->add(step, {{"evaluation/loss", report.loss}, {"evaluation/perplexity", report.perplexity()}}))
      throw RankError(*error);
    tell_hook(Json{{"evaluation", line}}.dump() + "\n");
    say(fmt::format("step {}: evaluation loss {:.4f}, perplexity {:.4g}{}", step, report.loss, report.perplexity(),
                    is_best ? ", the best so far" : ""));
    return is_best;
  }

  std::optional<Error> begin_save() {
    if (saving_) {
      say(fmt::format("waiting for the checkpoint of step {}, which is still being written", saving_->step()));
      if (auto error = finish_save()) return error;
    }
    auto save = session_.begin_save(save_options());
    if (!save) return std::move(save).error();
    saving_ = *std::move(save);
    return std::nullopt;
  }

  TrainingSession::SaveOptions save_options() const {
    TrainingSession::SaveOptions options{.checkpoints = start_.folder.checkpoints(),
                                         .removes_leftovers = removes_leftovers(),
                                         .run = evaluations_.to_json(),
                                         .keep_also = {}};
    if (keeps_best() && evaluations_.best()) options.keep_also = {evaluations_.best()->step, linked_step_};
    return options;
  }

  bool removes_leftovers() const { return !start_.claim || start_.claim->is_locked(); }

  void note_saved(const SavedCheckpoint& saved, int64_t step) {
    report_.checkpoint = saved.folder;
    saved_step_ = step;
    if (saved.warning) say(saved.warning->message());
    if (keeps_best() && evaluations_.best() && saved_step_ == evaluations_.best()->step) {
      linked_step_ = saved_step_;
      const std::optional<Error> failed = is_first() ? link_best(start_.folder, saved.folder) : std::nullopt;
      if (failed) say("note: " + failed->message());
    }
    saving_.reset();
  }

  std::optional<Error> poll_save() {
    if (!saving_) return std::nullopt;
    const auto saved = saving_->poll();
    if (!saved) return saved.error();
    if (*saved) note_saved(**saved, saving_->step());
    return std::nullopt;
  }

  std::optional<Error> finish_save() {
    if (!saving_) return std::nullopt;
    const auto saved = saving_->finish();
    if (!saved) return saved.error();
    note_saved(*saved, saving_->step());
    return std::nullopt;
  }

  /// The state after the last step is on disk when this returns, if the configuration has checkpoints.
  std::optional<Error> save_the_rest() {
    if (auto error = finish_save()) return error;
    const int64_t done = session_.num_steps();
    if (done == saved_step_ && (done == report_.first_step || !report_.checkpoint.empty())) return std::nullopt;
    if (interval() == 0) {
      say(fmt::format("note: steps {} to {} are not saved, since the configuration has no checkpoints", saved_step_ + 1,
                      done));
      return std::nullopt;
    }
    const auto saved = session_.save(save_options());  // no step follows that would change what is written
    if (!saved) return saved.error();
    note_saved(*saved, done);
    return std::nullopt;
  }

  /// A step failed on all ranks, and weights are as before it.
  Error keep_good_state(Error error) {
    if (auto failed = save_the_rest()) {
      error.details += failed->message() + "\n";
    } else if (!report_.checkpoint.empty() && saved_step_ == session_.num_steps()) {
      error.advice += fmt::format(" The state after step {} is in {}.", saved_step_, report_.checkpoint.string());
    }
    return error;
  }

  Result<TrainReport> end() {
    report_.last_step = session_.num_steps();
    report_.best = evaluations_.best();
    if (keeps_best() && linked_step_ >= 0)
      report_.best_checkpoint = start_.folder.checkpoints() / checkpoint_name(linked_step_);
    report_.is_saved = saved_step_ == report_.last_step && !report_.checkpoint.empty();
    means_.fill(report_);
    if (!options_.trace.empty() && report_.last_step > report_.first_step) {
      const UnlimitedWaits patience(world_.all());
      const Timeline timeline = gather_timeline(world_.all(), session_.last_events(), session_.last_start_ms());
      if (is_first()) {
        const auto error = write_file(options_.trace, to_chrome_trace(timeline));
        if (error) say(error->message());
      }
    }
    return std::move(report_);
  }

  World& world_;
  const Plan* plan_;
  std::shared_ptr<const Plan> running_;  ///< after a switch
  const TrainConfig& config_;
  const TrainOptions& options_;
  PlanSwitches& switches_;
  const RunStart& start_;
  TrainingSession& session_;
  TrainReport report_;
  int64_t saved_step_ = 0;  ///< that the newest checkpoint is of
  Evaluations evaluations_;
  int64_t linked_step_ = -1;  ///< that the kept best checkpoint is of; -1: there is none yet
  std::optional<LineFile> metrics_file_, record_file_, skipped_file_, evaluations_file_;
  std::optional<EventFile> events_;
  std::unique_ptr<MetricsHook> hook_;
  Means means_;
  std::unique_ptr<CheckpointSave> saving_;
  std::shared_ptr<const PlanSwitch> next_;  ///< on rank 0
  int64_t num_switches_ = 0;
};

}  // namespace

void say_preface(World& world, const Plan& plan, const TrainConfig& config, const std::optional<Checkpoint>& checkpoint,
                 const std::function<void(const std::string&)>& say,
                 const std::function<void(const std::string&)>& show) {
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

Result<std::unique_ptr<TrainingSession>> RunLoop::begin(World& world, std::optional<RunStart>& start) {
  const UnlimitedWaits patience(world.all());  // folders, weights and data may lie on slow disks
  WEFT_TRY(start, find_start(world, plan_, config_, options_));
  say_preface(world, plan_, config_, start->checkpoint, options_.say, options_.show);
  WEFT_TRY(std::unique_ptr<TrainingSession> session,
           TrainingSession::create(world, plan_, config_,
                                   {.checkpoint = start->checkpoint,
                                    .goes_on = true,
                                    .costs = options_.costs,
                                    .batches = switches_.batches_after(0, config_.data_threads),
                                    .records = true,
                                    .memory = options_.memory}));
  if (world.rank() == 0 && options_.say && !session->packing().empty()) options_.say(session->packing());
  if (auto error = open_run(world, *start, plan_, config_)) return *error;
  return session;
}

Result<TrainReport> RunLoop::run_rank(World& world) {
  std::optional<RunStart> start;
  WEFT_TRY(const std::unique_ptr<TrainingSession> session, begin(world, start));
  return RankRun(world, plan_, config_, options_, switches_, *start, *session).run();
}

}  // namespace weft
