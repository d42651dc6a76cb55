#include <cmath>
#include <cstdio>
#include <memory>
#include <optional>

#include <fmt/format.h>

#include "weft/base/json.h"
#include "weft/base/output_path.h"
#include "weft/base/units.h"
#include "weft/cli/duration_text.h"
#include "weft/cli/interrupt.h"
#include "weft/cli/json_output.h"
#include "weft/cli/legal_plan.h"
#include "weft/cli/one_process.h"
#include "weft/cli/run_text.h"
#include "weft/cli/runtime_loader.h"
#include "weft/cli/runtime_memory.h"
#include "weft/cli/terminal_line.h"
#include "weft/cli/validate_run.h"
#include "weft/cli/verbs.h"
#include "weft/comm/launch.h"
#include "weft/cost/sample_cost.h"

namespace weft {
namespace {

struct TrainVerbOptions {
  std::string plan;
  std::string config;
  std::string run_folder;
  std::optional<std::string> resume;
  std::optional<std::string> trace, profile;
  bool json = false;
};

/// Where people's time goes: of the ranks together.
struct TimeShares {
  double compute = 0;
  double communication = 0;
  double bubble = 0;
  double data = 0;
};

TimeShares shares_of(const StepMetrics& metrics) {
  TimeShares shares;
  for (const RankStep& rank : metrics.ranks) {
    shares.compute += rank.compute_ms;
    shares.communication += rank.communication_ms;
    shares.bubble += rank.bubble_ms;
    shares.data += rank.data_ms;
  }
  const double all = shares.compute + shares.communication + shares.bubble + shares.data;
  if (all <= 0) return {};
  return {shares.compute / all, shares.communication / all, shares.bubble / all, shares.data / all};
}

double most_memory(const StepMetrics& metrics) {
  double most = 0;
  for (const RankStep& rank : metrics.ranks) most = std::max(most, rank.peak_memory_bytes);
  return most;
}

Json to_json(const TrainReport& report) {
  Json json = {{"run_folder", report.run_folder.string()},
               {"first_step", report.first_step},
               {"last_step", report.last_step},
               {"checkpoint", report.checkpoint.empty() ? Json() : Json(report.checkpoint.string())}};
  json["first_loss"] = report.first_loss ? Json(*report.first_loss) : Json();
  json["last"] = report.first_loss ? to_json(report.last) : Json();
  const auto evaluated = [](const std::optional<Evaluated>& one) {
    return one ? Json{{"step", one->step}, {"loss", one->loss}, {"perplexity", std::exp(one->loss)}} : Json();
  };
  json["evaluation"] = evaluated(report.evaluated);
  json["best_evaluation"] = evaluated(report.best);
  json["best_checkpoint"] = report.best_checkpoint.empty() ? Json() : Json(report.best_checkpoint.string());
  json["ended_early"] = report.is_early;
  json["mean_step_ms"] = report.mean_step_ms;
  json["mean_tokens_per_s"] = report.mean_tokens_per_s;
  json["mean_model_flops_utilization"] = report.mean_utilization ? Json(*report.mean_utilization) : Json();
  return json;
}

std::string to_text(const TrainReport& report, const Model& model) {
  if (!report.first_loss) {
    return fmt::format("nothing to do: {} steps are done\nrun folder  {}\n", report.last_step,
                       report.run_folder.string());
  }
  const TimeShares shares = shares_of(report.last);
  std::string text = fmt::format("steps       {} to {}\n", report.first_step + 1, report.last_step);
  text += fmt::format("loss        {:.4f}, then {:.4f}\n", *report.first_loss, report.last.loss);
  if (report.evaluated) {
    text += fmt::format("evaluation  loss {:.4f}, perplexity {:.4g} after step {}", report.evaluated->loss,
                        std::exp(report.evaluated->loss), report.evaluated->step);
    if (report.best && report.best->step != report.evaluated->step)
      text += fmt::format("; the best was {:.4f} after step {}", report.best->loss, report.best->step);
    text += report.is_early ? "; ended early\n" : "\n";
  }
  text += fmt::format("step time   {:.1f} ms, {:.0f} tokens/s", report.mean_step_ms, report.mean_tokens_per_s);
  if (report.mean_utilization) text += fmt::format(", MFU {}", format_percent(*report.mean_utilization));
  text += fmt::format("\nlast step   compute {}, communication {}, bubble {}", format_percent(shares.compute),
                      format_percent(shares.communication), format_percent(shares.bubble));
  if (shares.data >= 5e-4) text += fmt::format(", waiting for samples {}", format_percent(shares.data));
  text += " of the ranks' time\n";
  if (most_memory(report.last) > 0)
    text += fmt::format("memory      {} on the fullest of {} ranks\n", format_bytes(most_memory(report.last)),
                        report.last.ranks.size());
  text += fmt::format("run folder  {}\n", report.run_folder.string());
  if (!report.checkpoint.empty()) text += fmt::format("checkpoint  {}\n", report.checkpoint.string());
  if (!report.best_checkpoint.empty()) text += fmt::format("best        {}\n", report.best_checkpoint.string());
  if (!report.checkpoint.empty()) {
    const std::string from =
        report.best_checkpoint.empty() ? report.run_folder.string() : report.best_checkpoint.string();
    text += fmt::format(
        "model       weft convert --from {} --to DIR writes {}\n", from,
        model.numbers.program ? "its weights, by their names in the program" : "the folder that transformers loads");
  }
  return text;
}

/// Shows every step of a short run and about a hundred of a long one as lines that stay; on a terminal, the others
/// replace each other below them, with the time that is left.
class StepLines {
 public:
  void show(const StepMetrics& metrics, int64_t num_steps) {
    // The first step warms up.
    if (++num_seen_ > 1) sum_ms_ += metrics.step_ms;
    std::string line = progress_line(metrics, num_steps);
    const int64_t num_left = num_steps - metrics.step;
    if (num_seen_ > 1 && num_left > 0) {
      const double mean_ms = sum_ms_ / static_cast<double>(num_seen_ - 1);
      line += fmt::format("  {} left", duration_text(mean_ms * 1e-3 * static_cast<double>(num_left)));
    }
    constexpr int64_t kMostLines = 100;
    const int64_t interval = std::max<int64_t>(1, num_steps / kMostLines);
    const bool stays = num_seen_ == 1 || metrics.step % interval == 0 || num_left == 0;
    if (!stays) return show_progress(line);
    show_progress("");
    fmt::print(stderr, "{}\n", line);
    std::fflush(stderr);
    if (num_left > 0) show_progress(fmt::format("computing step {}", metrics.step + 1));
  }

 private:
  int64_t num_seen_ = 0;
  double sum_ms_ = 0;
};

/// What a run that was interrupted has kept, and how it goes on.
Error interrupted(const TrainReport& report, const TrainVerbOptions& options) {
  Error error{.kind = ErrorKind::kJob, .source = "train"};
  const std::string run = report.run_folder.string();
  const bool has_steps = report.last_step > report.first_step;
  error.problem = has_steps ? fmt::format("was interrupted after step {}; {}/metrics.jsonl has the steps done",
                                          report.last_step, run)
                            : std::string("was interrupted before its first step");
  if (!report.checkpoint.empty()) {
    error.problem += fmt::format(" and {} the weights", report.checkpoint.string());
    error.advice =
        fmt::format("Go on with: weft train --plan {} --config {} --resume {}", options.plan, options.config, run);
  } else if (has_steps) {
    error.problem += "; weights are not kept, since the configuration has no checkpoints";
    error.advice = "A section checkpoints in it keeps them.";
  } else {
    error.advice = "Start it again with another --run, or with --resume.";
  }
  return error;
}

/// The run held against its prediction, which its folder keeps. A run is good without it.
std::optional<RunComparison> compared(const Plan& plan, const std::string& run_folder, const Profile* profile) {
  show_progress("comparing the run with its prediction");
  Result<RunComparison> comparison = keep_comparison(plan, run_folder, profile);
  show_progress("");
  if (comparison) return *std::move(comparison);
  say("note: the run is not compared with its prediction: " + comparison.error().message());
  return std::nullopt;
}

Result<std::string> run_train(const TrainVerbOptions& options) {
  if (auto error = find_bad_output({{"--trace", options.trace}})) return told_once(*std::move(error));
  Result<Plan> plan = read_trained_plan(options.plan, options.config);
  if (!plan) return told_once(std::move(plan).error());
  TrainRequest request{.plan = *std::move(plan),
                       .plan_source = options.plan,
                       .config_file = options.config,
                       .run_folder = options.run_folder,
                       .resumes = options.resume.has_value(),
                       .resume_from = options.resume.value_or(""),
                       .trace = options.trace.value_or("")};
  if (request.plan.balance != Balance::kNone) {
    WEFT_TRY(const CostModel model, CostModel::create(request.plan));
    const auto costs = std::make_shared<const PlanSampleCosts>(model, request.plan);
    request.costs = {
        .llm = [costs](const SampleLoad& sample) { return costs->llm_ms(sample); },
        .encoder = [costs](ModuleKind kind, const SampleLoad& sample) { return costs->encoder_ms(kind, sample); }};
  }
  std::optional<Profile> profile;
  if (options.profile) {
    Result<Profile> read = read_profile_file(*options.profile);
    if (!read) return told_once(std::move(read).error());
    profile = *std::move(read);
    // A profile of another model or device is refused before the work.
    if (auto model = CostModel::create(request.plan, &*profile); !model) return told_once(std::move(model).error());
  }
  StepLines lines;
  request.on_step = [&lines](const StepMetrics& metrics, int64_t num_steps) { lines.show(metrics, num_steps); };
  request.say = say;
  request.show = show_progress;
  request.memory = predicted_needs(request.plan, NeededFor::kTraining);
  show_progress("loading the runtime");
  WEFT_TRY(const RuntimeApi* runtime, load_runtime());
  // Loaded first, so that what libraries do with signals is over.
  request.stop = &stop_on_signals(
      detect_launch().is_speaker() ? "train: interrupted, ending after this step (Ctrl-C again: at once)" : "");
  Result<std::optional<TrainReport>> report = runtime->train(request);
  show_progress("");
  if (!report) {
    Error error = std::move(report).error();
    if (error.source.empty() && !error.field.empty()) error.source = options.plan;
    return error;
  }
  if (!*report) return std::string();
  const bool has_steps = (*report)->last_step > (*report)->first_step;
  std::optional<RunComparison> comparison;
  if (has_steps) comparison = compared(request.plan, (*report)->run_folder.string(), profile ? &*profile : nullptr);
  if ((*report)->is_stopped) {
    if ((*report)->is_saved) note_saved_state();
    return interrupted(**report, options);
  }
  if (!options.json) return to_text(**report, request.plan.model) + (comparison ? short_text(*comparison) : "");
  Json json = to_json(**report);
  json["prediction"] = comparison ? to_json(*comparison) : Json();
  return json_output(json);
}

}  // namespace

void add_train(Verbs& verbs) {
  auto options = std::make_shared<TrainVerbOptions>();
  Verb& verb = verbs.emplace_back(Verb{.name = "train", .summary = "Train a model as a plan says"});
  verb.option("--plan", options->plan, "The plan document").required().named("FILE");
  verb.option("--config", options->config, "Steps, learning rate, weights, checkpoints: YAML or JSON")
      .required()
      .named("FILE");
  verb.option("--run", options->run_folder,
              "Folder for metrics and checkpoints (default: the configuration's run_folder, else a new one in "
              "runs/)")
      .named("DIR");
  verb.option("--resume", options->resume,
              "Go on from the newest checkpoint of a run's folder, or from this one (default: of the run folder)")
      .bare()
      .named("[DIR]");
  verb.option("--profile", options->profile,
              "Measured blocks and links, for the prediction that the run is held against")
      .named("FILE");
  verb.option("--trace", options->trace, "Write the last step's timeline for Perfetto or chrome://tracing")
      .named("FILE");
  verb.option("--json", options->json, "Print one JSON object");
  verb.footer =
      "Ranks are threads of this process, as many as the plan's world. For processes and hosts:\n"
      "  mpirun -n 8 weft train --plan plan.json --config train.yaml\n"
      "Ctrl-C and SIGTERM end it after the step that is under way, with a checkpoint where the configuration has them\n"
      "(exit 3; without checkpoints 130); a second signal ends it at once. --resume goes on by any plan of the same "
      "model.\n"
      "Examples:\n"
      "  weft plan --model tiny-vl --cluster local_cpu --workload tiny_vl --space docs/manual/train_space.yaml --out "
      "plan.json\n"
      "  weft train --plan plan.json --config docs/manual/train.yaml --run run\n"
      "  weft train --plan plan.json --config docs/manual/train.yaml --resume run";
  verb.handles_signals = true;
  verb.run = [options] { return run_train(*options); };
}

}  // namespace weft
