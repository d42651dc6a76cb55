#include <memory>
#include <optional>

#include <fmt/format.h>

#include "weft/base/json.h"
#include "weft/base/units.h"
#include "weft/cli/legal_plan.h"
#include "weft/cli/one_process.h"
#include "weft/cli/runtime_loader.h"
#include "weft/cli/terminal_line.h"
#include "weft/cli/verbs.h"
#include "weft/cost/sample_cost.h"

namespace weft {
namespace {

struct TrainVerbOptions {
  std::string plan;
  std::string config;
  std::string run_folder;
  std::optional<std::string> resume;
  std::string trace;
  bool json = false;
};

/// Where people's time goes: of the ranks together.
struct TimeShares {
  double compute = 0;
  double communication = 0;
  double bubble = 0;
};

TimeShares shares_of(const StepMetrics& metrics) {
  TimeShares shares;
  for (const RankStep& rank : metrics.ranks) {
    shares.compute += rank.compute_ms;
    shares.communication += rank.communication_ms;
    shares.bubble += rank.bubble_ms;
  }
  const double all = shares.compute + shares.communication + shares.bubble;
  if (all <= 0) return {};
  return {shares.compute / all, shares.communication / all, shares.bubble / all};
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
  json["mean_step_ms"] = report.mean_step_ms;
  json["mean_tokens_per_s"] = report.mean_tokens_per_s;
  json["mean_model_flops_utilization"] = report.mean_utilization ? Json(*report.mean_utilization) : Json();
  return json;
}

std::string to_text(const TrainReport& report) {
  if (!report.first_loss) {
    return fmt::format("nothing to do: {} steps are done\nrun folder  {}\n", report.last_step,
                       report.run_folder.string());
  }
  const TimeShares shares = shares_of(report.last);
  std::string text = fmt::format("steps       {} to {}\n", report.first_step + 1, report.last_step);
  text += fmt::format("loss        {:.4f}, then {:.4f}\n", *report.first_loss, report.last.loss);
  text += fmt::format("step time   {:.1f} ms, {:.0f} tokens/s", report.mean_step_ms, report.mean_tokens_per_s);
  if (report.mean_utilization) text += fmt::format(", MFU {}", format_percent(*report.mean_utilization));
  text +=
      fmt::format("\nlast step   compute {}, communication {}, bubble {} of the ranks' time\n",
                  format_percent(shares.compute), format_percent(shares.communication), format_percent(shares.bubble));
  if (most_memory(report.last) > 0)
    text += fmt::format("memory      {} on the fullest of {} ranks\n", format_bytes(most_memory(report.last)),
                        report.last.ranks.size());
  text += fmt::format("run folder  {}\n", report.run_folder.string());
  if (!report.checkpoint.empty()) text += fmt::format("checkpoint  {}\n", report.checkpoint.string());
  return text;
}

Result<std::string> run_train(const TrainVerbOptions& options) {
  Result<Plan> plan = read_legal_plan(options.plan);
  if (!plan) return told_once(std::move(plan).error());
  TrainRequest request{.plan = *std::move(plan),
                       .plan_source = options.plan,
                       .config_file = options.config,
                       .run_folder = options.run_folder,
                       .resumes = options.resume.has_value(),
                       .resume_from = options.resume.value_or(""),
                       .trace = options.trace};
  if (request.plan.balance != Balance::kNone) {
    WEFT_TRY(const CostModel model, CostModel::create(request.plan));
    const auto costs = std::make_shared<const PlanSampleCosts>(model, request.plan);
    request.costs = {
        .llm = [costs](const SampleLoad& sample) { return costs->llm_ms(sample); },
        .encoder = [costs](ModuleKind kind, const SampleLoad& sample) { return costs->encoder_ms(kind, sample); }};
  }
  const bool is_terminal = has_terminal();
  request.on_step = [is_terminal](const StepMetrics& metrics, int64_t num_steps) {
    const std::string line = progress_line(metrics, num_steps);
    if (is_terminal) return show_progress(line);
    // A log that nobody watches: every step of a short run, about a hundred lines of a long one.
    const int64_t interval = std::max<int64_t>(1, num_steps / 100);
    if (metrics.step % interval == 0 || metrics.step == num_steps) fmt::print(stderr, "{}\n", line);
  };
  request.say = [is_terminal](const std::string& line) {
    if (is_terminal) show_progress("");
    fmt::print(stderr, "weft: {}\n", line);
    std::fflush(stderr);
  };
  WEFT_TRY(const RuntimeApi* runtime, load_runtime());
  Result<std::optional<TrainReport>> report = runtime->train(request);
  if (is_terminal) show_progress("");
  if (!report) {
    Error error = std::move(report).error();
    if (error.source.empty() && !error.field.empty()) error.source = options.plan;
    return error;
  }
  if (!*report) return std::string();
  return options.json ? to_json(**report).dump(2) + "\n" : to_text(**report);
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
  verb.option("--trace", options->trace, "Write the last step's timeline for Perfetto or chrome://tracing")
      .named("FILE");
  verb.option("--json", options->json, "Print one JSON object");
  verb.footer =
      "Ranks are threads of this process, as many as the plan's world. For processes and hosts:\n"
      "  mpirun -n 8 weft train --plan plan.json --config train.yaml\n"
      "Examples:\n"
      "  weft plan --model tiny-vl --cluster local_cpu --workload tiny_vl --space docs/manual/train_space.yaml --out "
      "plan.json\n"
      "  weft train --plan plan.json --config docs/manual/train.yaml --run run\n"
      "  weft train --plan plan.json --config docs/manual/train.yaml --resume run";
  verb.handles_signals = true;
  verb.run = [options] { return run_train(*options); };
}

}  // namespace weft
