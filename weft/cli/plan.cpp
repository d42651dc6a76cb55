#include <atomic>
#include <memory>
#include <optional>
#include <tuple>

#include <fmt/format.h>

#include "weft/base/check.h"
#include "weft/base/clock.h"
#include "weft/base/file.h"
#include "weft/base/output_path.h"
#include "weft/base/units.h"
#include "weft/cli/advice.h"
#include "weft/cli/count_option.h"
#include "weft/cli/exported_text.h"
#include "weft/cli/installation.h"
#include "weft/cli/interrupt.h"
#include "weft/cli/json_output.h"
#include "weft/cli/legal_plan.h"
#include "weft/cli/percent_option.h"
#include "weft/cli/plan_text.h"
#include "weft/cli/profile_text.h"
#include "weft/cli/report_text.h"
#include "weft/cli/search_defaults.h"
#include "weft/cli/terminal_line.h"
#include "weft/cli/verbs.h"
#include "weft/exchange/target_limits.h"
#include "weft/meaning/check.h"
#include "weft/meaning/plan_strategy.h"
#include "weft/meaning/trainable.h"
#include "weft/plan/plan_json.h"
#include "weft/search/choose_plan.h"
#include "weft/search/explain_plan.h"
#include "weft/search/plan_advice.h"
#include "weft/search/program_strategies.h"
#include "weft/search/target_space.h"
#include "weft/simulate/plan_simulator.h"
#include "weft/spec/adapters.h"
#include "weft/spec/batch_limit.h"
#include "weft/spec/sample_load.h"

namespace weft {
namespace {

struct PlanOptions {
  std::string model, cluster, workload;
  std::optional<std::string> from, nodes, devices_per_node, global_batch, batches, space, profile, top, out, target,
      within, memory_margin, adapters, strategy;
  double time_limit_s = 20;
  bool takes_fastest = false;
  bool explains = false;
  bool json = false;
};

/// What is searched for a model: everything, or what the search file says.
Result<PlanSpace> read_space(const PlanOptions& options, const Model& model, Workload workload) {
  if (!options.space) return PlanSpace();
  WEFT_TRY(const Document document, read_document(*options.space));
  WEFT_TRY(PlanSpace space, read_plan_space(document));
  if (auto error = find_foreign_module(document, model)) return *std::move(error);
  if (space.frozen) {
    workload.frozen = *space.frozen;
    if (auto error = find_nothing_to_train(model, workload)) {
      error->source = document.source;
      return *std::move(error);
    }
  }
  return space;
}

/// What the options name, read.
Result<PlanProblem> read_problem(const PlanOptions& options) {
  const Scenarios scenarios = find_scenarios();
  std::optional<int64_t> nodes, devices_per_node;
  if (options.nodes) {
    WEFT_TRY(nodes, parse_count("--nodes", *options.nodes, {1, kMostNodes}));
  }
  if (options.devices_per_node) {
    WEFT_TRY(devices_per_node, parse_count("--devices-per-node", *options.devices_per_node, {1, kMostDevicesPerNode}));
  }
  PlanProblem problem;
  WEFT_TRY(problem.model, scenarios.model(options.model));
  if (options.adapters) {
    WEFT_TRY(const std::vector<AdapterRule> adapters, read_adapters_file(*options.adapters));
    WEFT_TRY(problem.model, with_adapters(problem.model, adapters, *options.adapters));
  }
  WEFT_TRY(problem.cluster, scenarios.cluster(options.cluster, nodes, devices_per_node));
  WEFT_TRY(problem.workload, scenarios.workload(options.workload));
  if (options.global_batch) {
    WEFT_TRY(problem.workload.global_batch_samples,
             parse_count("--global-batch", *options.global_batch, {1, kMostBatchSamples}));
    problem.has_own_batch = true;
  }
  if (options.adapters) {
    // On a module that the workload freezes nothing would train them.
    const std::vector<Violation> bad = find_bad_rules({.model = problem.model, .workload = problem.workload});
    if (!bad.empty()) {
      Error error = to_error(bad, "are not legal");
      error.source = *options.adapters;
      return error;
    }
  }
  WEFT_TRY(problem.space, read_space(options, problem.model, problem.workload));
  return problem;
}

/// The plan with what the simulator says of it.
Result<PlanReport> predict(FoundPlan& found, const Profile* profile) {
  const std::vector<Violation> violations = check_plan(found.plan, PlanUse::kPrice);
  WEFT_CHECK(violations.empty(), "the search made a plan that is not legal: {}", violations.front().message);
  WEFT_TRY(PlanReport report, simulate_plan(found.plan, {.profile = profile, .steps_ms = found.steps_ms}));
  found.plan.predicted = prediction_of(report);
  return report;
}

Json to_json(const FoundPlan& found) {
  return {{"settings", found.candidate.text(found.plan)}, {"step_time_ms", found.step_time_ms}};
}

Json to_json(const PlanSearchResult& result, const PlanReport& report) {
  Json top = Json::array();
  for (const FoundPlan& found : result.best) {
    Json json = to_json(found);
    json["bound_ms"] = found.bound_ms;
    json["ties"] = found.ties.size();
    json["peak_memory_gib"] = found.plan.predicted.peak_memory_gib;
    top.push_back(std::move(json));
  }
  const FoundPlan& fastest = result.best.front();
  const FoundPlan& chosen = *result.chosen;
  const bool is_fastest = chosen.candidate == fastest.candidate;
  Json systems = Json::array();
  for (const Target target : expressed_by(chosen.plan)) systems.push_back(name_of(target));
  return {{"step_time_ms", chosen.step_time_ms},
          {"settings", chosen.candidate.text(chosen.plan)},
          {"slower_by", chosen.step_time_ms / fastest.step_time_ms - 1},
          {"because", is_fastest ? "" : why_chosen(chosen, fastest)},
          {"headroom_gib", (report.memory_limit_bytes - report.peak_memory_bytes()) / kGiB},
          {"exports_to", std::move(systems)},
          {"fastest", to_json(fastest)},
          {"optimal", result.is_optimal},
          {"bound_ms", result.bound_ms},
          {"gap", result.gap()},
          {"improved_by", result.improved_by},
          {"beyond_space", result.is_beyond_space},
          {"batches", result.batches},
          {"num_drawn", result.num_drawn},
          {"space_size", result.counts.considered},
          {"counts", to_json(result.counts)},
          {"top", std::move(top)}};
}

Result<Target> target_of(const std::string& name) {
  Result<Target> target = parse_target(name);
  if (target) return target;
  Error error = target.error();
  error.source = "--for";
  return error;
}

/// What the options say about how to search.
Result<PlanSearchOptions> search_options(const PlanOptions& options) {
  PlanSearchOptions how = default_search(options.time_limit_s);
  if (options.takes_fastest && options.within) {
    return Error{.source = "--fastest",
                 .problem = "is given together with --within",
                 .advice = "Give one of them: --fastest is --within 0."};
  }
  if (options.within) {
    WEFT_TRY(how.within, parse_percent("--within", *options.within, 100,
                                       "Without it, the simplest plan within 2 % of the fastest is chosen."));
  }
  if (options.takes_fastest) how.within = 0;
  if (options.memory_margin) {
    WEFT_TRY(how.memory_margin, parse_percent("--memory-margin", *options.memory_margin, 90,
                                              "Without it, plans leave 8 % of a device's memory free."));
  }
  if (options.top) {
    WEFT_TRY(const int64_t top, parse_count("--top", *options.top, {1, 100}));
    how.top = static_cast<size_t>(top);
  }
  if (options.batches) {
    WEFT_TRY(how.batches, parse_count("--batches", *options.batches, {0, 10'000}));
  }
  return how;
}

/// The fastest plan of the whole space on the batches that a plan for one system was chosen on, to compare with it.
Result<PlanSearchResult> search_freely(const PlanProblem& problem, const PlanSpace& whole, int64_t batches,
                                       PlanSearchOptions how) {
  how.top = 1;
  how.within = 0;
  how.batches = batches;
  return search_plans(problem.model, problem.cluster, problem.workload, whole, how);
}

/// Plans with the strategy of a file, or with whatever strategy is faster than the usual one.
Result<PlanSearchResult> search_strategies(const PlanOptions& options, const PlanProblem& problem,
                                           const PlanSearchOptions& how, std::optional<StrategyGain>& gain) {
  if (options.strategy) {
    WEFT_TRY(const Document document, read_document(*options.strategy));
    WEFT_TRY(const StrategyFile file, read_strategy(document));
    WEFT_TRY(const ModuleStrategy strategy, module_strategy(file, problem.model));
    Result<PlanSearchResult> result = search_with({{.module = ModuleKind::kLlm, .strategy = strategy}}, problem, how);
    if (result) return result;
    Error error = result.error();
    if (error.source.empty()) error.source = *options.strategy;
    return error;
  }
  const double begin_ms = now_ms();
  WEFT_TRY(PlanSearchResult result, search_plans(problem.model, problem.cluster, problem.workload, problem.space, how));
  if (problem.space.target) return result;
  PlanSearchOptions rest = how;
  const double spent_s = (now_ms() - begin_ms) / 1e3;
  rest.time_limit_s = std::max(0.0, how.time_limit_s - spent_s);
  WEFT_TRY(gain, improve_by_strategies(problem, rest, result, spent_s));
  return result;
}

/// What of a time limit is left since `begin_ms`, without what the answer itself takes.
double seconds_left(double time_limit_s, double begin_ms) {
  constexpr double kMostAnswer_s = 0.05, kAnswerShare = 0.05;
  const double answer_s = std::min(kMostAnswer_s, kAnswerShare * time_limit_s);
  return std::max(0.0, time_limit_s - answer_s - (now_ms() - begin_ms) / 1e3);
}

/// `how` has the time that is left for advice.
Error no_plan(const PlanProblem& problem, const PlanSearchResult& result, const PlanSearchOptions& how) {
  if (how.stop->load()) {
    return {.kind = ErrorKind::kJob,
            .source = "plan",
            .problem = "was interrupted before a plan was found",
            .advice = "Let it run longer, or pin settings in a search file."};
  }
  Error error = explain_no_plan(problem, result, how);
  if (problem.space.target) error.problem = fmt::format("for {}, {}", name_of(*problem.space.target), error.problem);
  return error;
}

/// Options that mean nothing beside a plan that is there already.
std::optional<Error> find_foreign_to_plan(const PlanOptions& options) {
  const bool is_of_model = !options.model.empty() || !options.cluster.empty() || !options.workload.empty();
  const auto refused = [](std::string_view flag, std::string_view why, std::string_view advice) {
    return Error{.source = "--from",
                 .problem = fmt::format("is given together with {}, {}", flag, why),
                 .advice = std::string(advice)};
  };
  if (is_of_model) return refused("--model, --cluster or --workload", "which the plan carries", "Leave them out.");
  for (const auto& [flag, is_given] : {std::pair{"--nodes", options.nodes.has_value()},
                                       {"--devices-per-node", options.devices_per_node.has_value()},
                                       {"--global-batch", options.global_batch.has_value()},
                                       {"--adapters", options.adapters.has_value()},
                                       {"--strategy", options.strategy.has_value()}}) {
    if (is_given) return refused(flag, "but the plan carries its own", "Leave one of them out.");
  }
  for (const auto& [flag, is_given] : {std::pair{"--profile", options.profile.has_value()},
                                       {"--top", options.top.has_value()},
                                       {"--explain", options.explains}}) {
    if (is_given)
      return refused(flag, "which is for a search by itself: both plans are priced by formulas, change by change",
                     "Leave it out, or search with --model, --cluster and --workload.");
  }
  return std::nullopt;
}

std::optional<Error> find_bad_plan_output(const PlanOptions& options) {
  return find_bad_output({{"--out", options.out}}, {{"--from", options.from},
                                                    {"--model", options.model},
                                                    {"--cluster", options.cluster},
                                                    {"--workload", options.workload},
                                                    {"--adapters", options.adapters},
                                                    {"--strategy", options.strategy},
                                                    {"--space", options.space},
                                                    {"--profile", options.profile}});
}

/// A plan that is there already, beside the best one for the same model, cluster and batch.
Result<std::string> compare_with(const PlanOptions& options) {
  if (auto error = find_bad_plan_output(options)) return *std::move(error);
  if (auto error = find_foreign_to_plan(options)) return *std::move(error);
  AdviceOptions how{.system = {}, .search = {}, .needs_settings = true};
  WEFT_TRY(how.search, search_options(options));
  if (options.target) {
    WEFT_TRY(how.system, target_of(*options.target));
  }
  WEFT_TRY(const Plan plan, read_legal_plan(*options.from, PlanUse::kPrice));
  WEFT_TRY(how.space, read_space(options, plan.model, plan.workload));
  WEFT_TRY(const Advice advice, advise(plan, how));
  if (options.out) {
    if (auto error = write_file(*options.out, plan_to_text(advice.answer()))) return *error;
  }
  if (options.json) return json_output(to_json(advice));
  std::string text = to_text(advice);
  if (how.system) {
    WEFT_TRY(const std::vector<ExportedFile> files, export_plan(advice.answer(), *how.system));
    text += "\n" + shown(files);
  }
  if (options.out) text += fmt::format("plan written to {}\n", *options.out);
  return text;
}

/// What a search needs, and a plan that is there already has.
std::optional<Error> find_missing(const PlanOptions& options) {
  for (const auto& [flag, value, call] :
       {std::tuple{"--model", &options.model,
                   "--model M: Hugging Face config.json, a folder holding one, or a name in scenarios/models"},
        {"--cluster", &options.cluster, "--cluster C: YAML or JSON file, or a name in scenarios/clusters"},
        {"--workload", &options.workload, "--workload W: YAML or JSON file, or a name in scenarios/workloads"}}) {
    if (value->empty())
      return Error{.source = "plan", .field = flag, .problem = "is missing", .advice = fmt::format("Give {}.", call)};
  }
  return std::nullopt;
}

Result<std::string> search(const PlanOptions& options) {
  if (options.from) return compare_with(options);
  const double begin_ms = now_ms();
  if (auto error = find_missing(options)) return *std::move(error);
  if (auto error = find_bad_plan_output(options)) return *std::move(error);
  WEFT_TRY(PlanSearchOptions how, search_options(options));
  std::optional<Target> target;
  if (options.target) {
    WEFT_TRY(target, target_of(*options.target));
  }
  WEFT_TRY(PlanProblem problem, read_problem(options));
  const PlanSpace whole = problem.space;
  if (target) {
    WEFT_TRY(problem.space, space_for(*target, whole, problem.model));
  }
  const std::atomic<bool>& is_interrupted = stop_on_interrupt();
  how.stop = &is_interrupted;
  std::optional<Profile> profile;
  if (options.profile) {
    WEFT_TRY(profile, read_profile_file(*options.profile));
    how.profile = &*profile;
  }
  const bool is_terminal = has_terminal();
  if (is_terminal) how.progress = show_progress;
  std::optional<StrategyGain> gain;
  how.time_limit_s = seconds_left(options.time_limit_s, begin_ms);
  WEFT_TRY(PlanSearchResult result, search_strategies(options, problem, how, gain));
  if (result.best.empty()) {
    // Some advice is worth a moment more.
    constexpr double kFewest_s = 0.5;
    how.time_limit_s = std::max(kFewest_s, seconds_left(options.time_limit_s, begin_ms));
    const Error error = no_plan(problem, result, how);
    if (is_terminal) show_progress("");
    return error;
  }
  std::optional<PlanSearchResult> free;
  if (target && !is_interrupted.load()) {
    WEFT_TRY(free, search_freely(problem, whole, result.batches, how));
  }
  std::optional<Explanation> explanation;
  if (options.explains && !is_interrupted.load()) {
    // With the plan's own strategy, so that what differs is the settings.
    PlanProblem explained = problem;
    const PlanStrategy strategy = strategy_of(result.chosen->plan);
    if (!strategy.empty()) {
      WEFT_TRY(explained, problem_with(strategy, problem));
    }
    WEFT_TRY(explanation, explain_plan(explained, result, how));
  }
  if (is_terminal) show_progress("");
  if (is_interrupted.load()) say("plan: was interrupted; this is the best plan so far");

  for (FoundPlan& found : result.best) {
    WEFT_TRY(const PlanReport report, predict(found, how.profile));
  }
  FoundPlan& chosen = *result.chosen;
  WEFT_TRY(const PlanReport report, predict(chosen, how.profile));
  std::vector<ExportedFile> settings;
  if (target) {
    WEFT_TRY(settings, export_plan(chosen.plan, *target));
  }
  if (options.out) {
    if (auto error = write_file(*options.out, plan_to_text(chosen.plan))) return *error;
  }
  if (options.json) {
    Json json = to_json(result, report);
    if (result.batches > 0) json["spread"] = to_json(report.spread);
    json["calibration"] = calibration_json(report);
    json["warnings"] = report.warnings;
    if (report.profile) json["profile"] = profile_json(*report.profile);
    if (explanation) json["explanation"] = to_json(*explanation);
    if (gain) json["strategy"] = to_json(*gain, report);
    if (target) {
      json["for"] = {{"system", name_of(*target)}, {"files", Json::array()}};
      for (const ExportedFile& file : settings)
        json["for"]["files"].push_back({{"name", file.name}, {"text", file.text}});
      if (free && !free->best.empty()) json["for"]["fastest_of_all"] = to_json(free->best.front());
    }
    json["plan"] = plan_to_json(chosen.plan);
    return json_output(json);
  }
  std::string text = fmt::format("{}\n", chosen.candidate.text(chosen.plan)) + layers_text(chosen.plan);
  text += to_text(chosen.plan, report) + headroom_text(chosen.plan, report, how.memory_margin);
  text += "\n" + search_text(result, gain ? &*gain : nullptr);
  if (gain) text += strategy_text(*gain, report, options.explains);
  if (free) text += target_text(*target, chosen, *free);
  if (how.top > 1) text += "\n" + comparison_text(result);
  if (explanation) text += "\n" + to_text(*explanation);
  if (target) text += "\n" + shown(settings);
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
      .named("M");
  verb.option("--cluster", options->cluster, "YAML or JSON file, or a name in scenarios/clusters").named("C");
  verb.option("--workload", options->workload, "YAML or JSON file, or a name in scenarios/workloads").named("W");
  verb.option("--adapters", options->adapters,
              "Train low-rank adapters (LoRA) in place of the model's weights: YAML with rank, alpha, dropout, targets")
      .named("FILE");
  verb.option("--from", options->from,
              "A plan document to do better than, instead of model, cluster and workload: both side by side (with "
              "--space, --within, --fastest, --memory-margin, --batches, --time-limit, --for, --out)")
      .named("PLAN");
  verb.option("--strategy", options->strategy,
              "Of a program of your own: what its operators do on the tensor-parallel axis (a file of weft shard)")
      .named("FILE");
  verb.option("--nodes", options->nodes, "Number of nodes, instead of the cluster file's").named("N");
  verb.option("--devices-per-node", options->devices_per_node, "Devices of a node, instead of the cluster file's")
      .named("N");
  verb.option("--global-batch", options->global_batch, "Samples a step, instead of the workload file's").named("N");
  verb.option("--space", options->space,
              "YAML or JSON that pins or bounds what is searched (docs/manual/plan.md; default: everything)")
      .named("FILE");
  verb.option("--profile", options->profile, "Measured blocks and links, which take the place of formulas")
      .named("FILE");
  verb.option("--top", options->top, "Compare the K fastest plans of the space, of different times (default: 1)")
      .named("K");
  verb.option("--within", options->within,
              "Choose the simplest of the plans that are at most so much slower than the fastest (default: 2)")
      .named("PERCENT");
  verb.option("--fastest", options->takes_fastest, "Choose the fastest plan, to the digit: --within 0");
  verb.option("--memory-margin", options->memory_margin, "How much of a device's memory plans leave free (default: 8)")
      .named("PERCENT");
  verb.option("--time-limit", options->time_limit_s, "Seconds after which the best so far is given (default: 20)")
      .named("S")
      .within(0.001, 1e6);
  verb.option("--batches", options->batches,
              "Compare plans on N batches drawn from the workload; 0: on the mean batch (default: as many as it takes "
              "to be sure)")
      .named("N");
  verb.option("--explain", options->explains, "Say why the usual alternatives lost, and what would change the answer");
  verb.option("--for", options->target,
              "Search what megatron, mindspeed-mm, mindformers, mindspeed-rl or torchtitan can express, and print its "
              "settings")
      .named("SYSTEM");
  verb.option("--out", options->out, "Write the plan document there").named("FILE");
  verb.option("--json", options->json, "Print one JSON object");
  verb.footer =
      "Ctrl-C ends the search with the best plan so far. Exit status 1 when nothing fits, with what is missing.\n"
      "Examples:\n"
      "  weft plan --model qwen2-vl-7b --cluster dgx_h100 --workload vl_sft --out plan.json\n"
      "  weft plan --model qwen2-vl-72b --cluster ascend_910b_16 --nodes 8 --workload vl_sft --global-batch 1024 --top "
      "5\n"
      "  weft plan --model llama3-8b --cluster dgx_h100 --workload text_4k --for megatron";
  verb.run = [options] { return search(*options); };
}

}  // namespace weft
