#include <atomic>
#include <memory>
#include <optional>

#include <fmt/format.h>

#include "weft/base/check.h"
#include "weft/base/file.h"
#include "weft/base/output_path.h"
#include "weft/base/units.h"
#include "weft/cli/count_option.h"
#include "weft/cli/exported_text.h"
#include "weft/cli/installation.h"
#include "weft/cli/interrupt.h"
#include "weft/cli/plan_text.h"
#include "weft/cli/report_text.h"
#include "weft/cli/terminal_line.h"
#include "weft/cli/verbs.h"
#include "weft/meaning/check.h"
#include "weft/plan/plan_json.h"
#include "weft/search/explain_plan.h"
#include "weft/search/plan_advice.h"
#include "weft/simulate/plan_simulator.h"

namespace weft {
namespace {

struct PlanOptions {
  std::string model, cluster, workload;
  std::optional<std::string> nodes, global_batch, batches, space, profile, top, out, format;
  double time_limit_s = 20;
  bool explains = false;
  bool json = false;
};

/// What the options name, read.
Result<PlanProblem> read_problem(const PlanOptions& options) {
  const Scenarios scenarios = find_scenarios();
  std::optional<int64_t> nodes;
  if (options.nodes) {
    WEFT_TRY(nodes, parse_count("--nodes", *options.nodes, {1, kMostNodes}));
  }
  PlanProblem problem;
  WEFT_TRY(problem.model, scenarios.model(options.model));
  WEFT_TRY(problem.cluster, scenarios.cluster(options.cluster, nodes));
  WEFT_TRY(problem.workload, scenarios.workload(options.workload));
  if (options.global_batch) {
    WEFT_TRY(problem.workload.global_batch_samples,
             parse_count("--global-batch", *options.global_batch, {1, 100'000'000}));
  }
  if (options.space) {
    WEFT_TRY(const Document document, read_document(*options.space));
    WEFT_TRY(problem.space, read_plan_space(document));
    if (auto error = find_foreign_module(document, problem.model)) return *std::move(error);
  }
  return problem;
}

/// The plan with what the simulator says of it.
Result<PlanReport> predict(FoundPlan& found, const Profile* profile) {
  const std::vector<Violation> violations = check_plan(found.plan, PlanUse::kPrice);
  WEFT_CHECK(violations.empty(), "the search made a plan that is not legal: {}", violations.front().message);
  WEFT_TRY(PlanReport report, simulate_plan(found.plan, {.profile = profile}));
  found.plan.predicted = prediction_of(report);
  return report;
}

Json to_json(const PlanSearchResult& result) {
  Json top = Json::array();
  for (const FoundPlan& found : result.best) {
    top.push_back({{"settings", found.candidate.text(found.plan)},
                   {"step_time_ms", found.step_time_ms},
                   {"bound_ms", found.bound_ms},
                   {"peak_memory_gib", found.plan.predicted.peak_memory_gib}});
  }
  return {{"step_time_ms", result.best.front().step_time_ms},
          {"optimal", result.is_optimal},
          {"bound_ms", result.bound_ms},
          {"gap", result.gap()},
          {"batches", result.batches},
          {"num_drawn", result.num_drawn},
          {"space_size", result.counts.considered},
          {"counts", to_json(result.counts)},
          {"top", std::move(top)}};
}

/// The plan as another system's settings; of several files, each below a line with its name.
Result<std::string> formatted(const Plan& plan, const std::string& format) {
  Result<Target> target = parse_target(format);
  if (!target) {
    Error error = target.error();
    error.source = "--format";
    return error;
  }
  Result<std::vector<ExportedFile>> files = export_plan(plan, *target);
  if (!files) {
    Error error = files.error();
    error.kind = ErrorKind::kJob;
    error.source = "plan";
    error.advice = "A search file (--space) can leave such settings out. " + error.advice;
    return error;
  }
  return shown(*files);
}

Result<std::string> search(const PlanOptions& options) {
  if (auto error = find_bad_output({{"--out", options.out}})) return *std::move(error);
  WEFT_TRY(PlanProblem problem, read_problem(options));
  if (options.format) {
    // Other systems deal samples out in their order.
    problem.space.balances = {Balance::kNone};
    // Refused before a long search, not after it.
    const Result<Target> target = parse_target(*options.format);
    if (!target) return formatted({}, *options.format);
  }
  const std::atomic<bool>& is_interrupted = stop_on_interrupt();
  PlanSearchOptions how{.time_limit_s = options.time_limit_s, .stop = &is_interrupted};
  if (options.top) {
    WEFT_TRY(const int64_t top, parse_count("--top", *options.top, {1, 100}));
    how.top = static_cast<size_t>(top);
  }
  how.batches = kEnoughBatches;
  if (options.batches) {
    WEFT_TRY(how.batches, parse_count("--batches", *options.batches, {0, 10'000}));
  }
  std::optional<Profile> profile;
  if (options.profile) {
    WEFT_TRY(profile, read_profile_file(*options.profile));
    how.profile = &*profile;
  }
  const bool is_terminal = has_terminal();
  if (is_terminal) how.progress = show_progress;
  Result<PlanSearchResult> searched =
      search_plans(problem.model, problem.cluster, problem.workload, problem.space, how);
  if (!searched) return searched.error();
  PlanSearchResult& result = *searched;
  if (result.best.empty()) {
    if (is_interrupted.load()) {
      show_progress("");
      return Error{.kind = ErrorKind::kJob,
                   .source = "plan",
                   .problem = "was interrupted before a plan was found",
                   .advice = "Let it run longer, or pin settings in a search file."};
    }
    const Error error = explain_no_plan(problem, result, how);
    if (is_terminal) show_progress("");
    return error;
  }
  std::optional<Explanation> explanation;
  if (options.explains && !is_interrupted.load()) {
    WEFT_TRY(explanation, explain_plan(problem, result.best.front(), how));
  }
  if (is_terminal) show_progress("");
  if (is_interrupted.load()) say("plan: was interrupted; this is the best plan so far");

  std::vector<PlanReport> reports;
  for (FoundPlan& found : result.best) {
    WEFT_TRY(PlanReport report, predict(found, how.profile));
    reports.push_back(std::move(report));
  }
  const FoundPlan& best = result.best.front();
  if (options.out) {
    if (auto error = write_file(*options.out, plan_to_text(best.plan))) return *error;
  }
  if (options.json) {
    Json json = to_json(result);
    if (result.batches > 0) json["spread"] = to_json(reports.front().spread);
    json["calibration"] = calibration_json(reports.front());
    json["warnings"] = reports.front().warnings;
    if (explanation) json["explanation"] = to_json(*explanation);
    if (options.format) {
      WEFT_TRY(json["formatted"], formatted(best.plan, *options.format));
    }
    json["plan"] = plan_to_json(best.plan);
    return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  }
  if (options.format) return formatted(best.plan, *options.format);
  std::string text = fmt::format("{}\n", best.candidate.text(best.plan)) + layers_text(best.plan);
  text += to_text(best.plan, reports.front()) + "\n" + search_text(result);
  if (result.best.size() > 1) text += "\n" + comparison_text(result.best);
  if (explanation) text += "\n" + to_text(*explanation);
  if (options.out) text += fmt::format("plan written to {}\n", *options.out);
  return text;
}

}  // namespace

void add_plan(Verbs& verbs) {
  auto options = std::make_shared<PlanOptions>();
  Verb& verb = verbs.emplace_back(
      Verb{.name = "plan", .summary = "Find the fastest way to spread a training over a cluster that fits in memory"});
  verb.option("--model", options->model,
              "Hugging Face config.json, a folder holding one, or a name in scenarios/models")
      .named("M")
      .required();
  verb.option("--cluster", options->cluster, "YAML or JSON file, or a name in scenarios/clusters")
      .named("C")
      .required();
  verb.option("--workload", options->workload, "YAML or JSON file, or a name in scenarios/workloads")
      .named("W")
      .required();
  verb.option("--nodes", options->nodes, "Number of nodes, instead of the cluster file's").named("N");
  verb.option("--global-batch", options->global_batch, "Samples a step, instead of the workload file's").named("N");
  verb.option("--space", options->space,
              "YAML or JSON that pins or bounds what is searched (docs/manual/plan.md; default: everything)")
      .named("FILE");
  verb.option("--profile", options->profile, "Measured blocks and links, which take the place of formulas")
      .named("FILE");
  verb.option("--top", options->top, "Compare the K best plans (default: 1)").named("K");
  verb.option("--time-limit", options->time_limit_s, "Seconds after which the best so far is given (default: 20)")
      .named("S")
      .within(0.001, 1e6);
  verb.option("--batches", options->batches,
              "Compare plans on N batches drawn from the workload; 0: on the mean batch (default: as many as it takes "
              "to be sure)")
      .named("N");
  verb.option("--explain", options->explains, "Say why the usual alternatives lost, and what would change the answer");
  verb.option("--format", options->format, "Print the plan as megatron, mindspeed-mm or mindformers settings")
      .named("SYSTEM");
  verb.option("--out", options->out, "Write the plan document there").named("FILE");
  verb.option("--json", options->json, "Print one JSON object");
  verb.footer =
      "Ctrl-C ends the search with the best plan so far. Exit status 1 when nothing fits, with what is missing.\n"
      "Examples:\n"
      "  weft plan --model qwen2-vl-7b --cluster dgx_h100 --workload vl_sft --out plan.json\n"
      "  weft plan --model qwen2-vl-72b --cluster ascend_910b_16 --nodes 8 --workload vl_sft --global-batch 1024 --top "
      "5";
  verb.run = [options] { return search(*options); };
}

}  // namespace weft
