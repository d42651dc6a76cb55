#include <atomic>
#include <csignal>
#include <cstdio>
#include <memory>
#include <optional>
#include <unistd.h>

#include <fmt/format.h>

#include "weft/base/file.h"
#include "weft/base/units.h"
#include "weft/cli/count_option.h"
#include "weft/cli/installation.h"
#include "weft/cli/report_text.h"
#include "weft/cli/table.h"
#include "weft/cli/verbs.h"
#include "weft/plan/plan_json.h"
#include "weft/search/plan_search.h"
#include "weft/simulate/plan_simulator.h"

namespace weft {
namespace {

struct PlanOptions {
  std::string model, cluster, workload;
  std::optional<std::string> nodes, global_batch, space, profile, top, out;
  double time_limit_s = 60;
  bool json = false;
};

/// Set by Ctrl-C: the search ends with the best so far.
std::atomic<bool> is_interrupted = false;

extern "C" void note_interrupt(int) {
  is_interrupted.store(true);
}

void show_progress(const std::string& text) {
  std::fputs(fmt::format("\r{:<78}\r", text).c_str(), stderr);
  std::fflush(stderr);
}

Json to_json(const SearchCounts& counts) {
  return {{"considered", counts.considered},
          {"slower_by_work", counts.slower_by_work},
          {"slower_by_schedule", counts.slower_by_schedule},
          {"slower_by_placement", counts.slower_by_placement},
          {"over_memory", counts.over_memory},
          {"evaluated", counts.evaluated},
          {"left", counts.left}};
}

std::string counts_text(const SearchCounts& c) {
  return fmt::format(
      "{} candidates: {} slower by their work alone, {} by their schedule, {} by any placement that fits, {} over "
      "memory, {} simulated{}\n",
      c.considered, c.slower_by_work, c.slower_by_schedule, c.slower_by_placement, c.over_memory, c.evaluated,
      c.left > 0 ? fmt::format(", {} not looked at", c.left) : "");
}

std::string proof_text(const PlanSearchResult& result) {
  if (result.is_optimal) return "optimal: nothing in the space is faster\n";
  return fmt::format("not proven optimal: nothing in the space is faster than {:.1f} ms, {} below this plan\n",
                     result.bound_ms, format_percent(result.gap()));
}

std::string layers_text(const Plan& plan) {
  std::string text;
  for (const ModulePlan& module : plan.modules) {
    std::vector<std::string> stages;
    for (size_t rank = 0; rank < module.layers.size(); ++rank) {
      std::vector<std::string> chunks;
      for (size_t chunk = 0; chunk < module.layers[rank].size(); ++chunk) {
        const int64_t recomputed = module.recompute[rank][chunk].full;
        chunks.push_back(fmt::format("{}{}", module.layers[rank][chunk],
                                     recomputed > 0 ? fmt::format(" ({} recomputed)", recomputed) : ""));
      }
      stages.push_back(fmt::format("{}", fmt::join(chunks, "+")));
    }
    text += fmt::format("{} layers by pipeline rank: {}\n", name_of(module.kind), fmt::join(stages, ", "));
  }
  return text;
}

Result<std::string> search(const PlanOptions& options) {
  const Scenarios scenarios = find_scenarios();
  std::optional<int64_t> nodes;
  if (options.nodes) {
    WEFT_TRY(nodes, parse_count("--nodes", *options.nodes, {1, kMostNodes}));
  }
  WEFT_TRY(const Model model, scenarios.model(options.model));
  WEFT_TRY(const Cluster cluster, scenarios.cluster(options.cluster, nodes));
  WEFT_TRY(Workload workload, scenarios.workload(options.workload));
  if (options.global_batch) {
    WEFT_TRY(workload.global_batch_samples, parse_count("--global-batch", *options.global_batch, {1, 100'000'000}));
  }
  PlanSpace space;
  if (options.space) {
    WEFT_TRY(const Document document, read_document(*options.space));
    WEFT_TRY(space, read_plan_space(document));
  }
  PlanSearchOptions how{.time_limit_s = options.time_limit_s, .stop = &is_interrupted};
  if (options.top) {
    WEFT_TRY(const int64_t top, parse_count("--top", *options.top, {1, 100}));
    how.top = static_cast<size_t>(top);
  }
  std::optional<Profile> profile;
  if (options.profile) {
    WEFT_TRY(profile, read_profile_file(*options.profile));
    how.profile = &*profile;
  }
  const bool is_terminal = isatty(STDERR_FILENO) != 0;
  if (is_terminal) how.progress = show_progress;
  std::signal(SIGINT, note_interrupt);
  Result<PlanSearchResult> searched = search_plans(model, cluster, workload, space, how);
  std::signal(SIGINT, SIG_DFL);
  if (is_terminal) show_progress("");
  if (!searched) return searched.error();
  PlanSearchResult& result = *searched;
  if (result.best.empty()) {
    const bool is_empty = result.counts.considered == 0;
    return Error{.kind = ErrorKind::kJob,
                 .source = "plan",
                 .problem = is_empty ? fmt::format("no settings divide {} devices and a global batch of {} samples",
                                                   cluster.num_devices(), workload.global_batch_samples)
                                     : fmt::format("none of {} candidates fits in {:.4g} GiB a device",
                                                   result.counts.considered, cluster.device.memory_gib),
                 .advice = is_empty
                               ? std::string(options.space ? "Look at what the space pins: tp must divide a node's "
                                                             "devices, the degrees the devices, and dp x mbs the batch."
                                                           : "Choose a global batch with more divisors.")
                               : std::string("Use more devices, devices with more memory, or a wider space.")};
  }
  std::vector<std::string> warnings;
  for (FoundPlan& found : result.best) {
    WEFT_TRY(const PlanReport report, simulate_plan(found.plan, {.profile = how.profile}));
    found.plan.predicted = {.step_time_ms = report.step_time_ms,
                            .bubble_fraction = report.bubble_fraction,
                            .throughput_samples_per_s = report.throughput_samples_per_s};
    for (const RowReport& row : report.rows) found.plan.predicted.peak_memory_gib.push_back(row.memory.total() / kGiB);
    if (warnings.empty()) warnings = report.warnings;
  }
  const FoundPlan& best = result.best.front();
  if (options.out) {
    if (auto error = write_file(*options.out, plan_to_text(best.plan))) return *error;
  }
  if (options.json) {
    Json top = Json::array();
    for (const FoundPlan& found : result.best) {
      top.push_back({{"settings", found.candidate.text(found.plan)},
                     {"step_time_ms", found.step_time_ms},
                     {"bound_ms", found.bound_ms},
                     {"peak_memory_gib", found.plan.predicted.peak_memory_gib}});
    }
    const Json json = {{"step_time_ms", best.step_time_ms},
                       {"optimal", result.is_optimal},
                       {"bound_ms", result.bound_ms},
                       {"gap", result.gap()},
                       {"space_size", result.counts.considered},
                       {"counts", to_json(result.counts)},
                       {"top", top},
                       {"warnings", warnings},
                       {"plan", plan_to_json(best.plan)}};
    return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  }
  std::string text = fmt::format("{}\n", best.candidate.text(best.plan)) + layers_text(best.plan);
  WEFT_TRY(const PlanReport report, simulate_plan(best.plan, {.profile = how.profile}));
  text += to_text(best.plan, report) + "\n" + counts_text(result.counts) + proof_text(result);
  if (result.best.size() > 1) {
    Table table;
    table.add({"settings", "step ms", "slower by"});
    for (const FoundPlan& found : result.best) {
      table.add({found.candidate.text(found.plan), fmt::format("{:.1f}", found.step_time_ms),
                 format_percent(found.step_time_ms / best.step_time_ms - 1)});
    }
    text += "\n" + table.text();
  }
  if (options.out) text += fmt::format("plan written to {}\n", *options.out);
  return text;
}

}  // namespace

void add_plan(CLI::App& app, RunVerb& run) {
  auto options = std::make_shared<PlanOptions>();
  CLI::App* verb =
      app.add_subcommand("plan", "Find the fastest way to spread a training over a cluster that fits in memory");
  verb->add_option("--model", options->model,
                   "Hugging Face config.json, a folder holding one, or a name in scenarios/models")
      ->type_name("M")
      ->required();
  verb->add_option("--cluster", options->cluster, "YAML or JSON file, or a name in scenarios/clusters")
      ->type_name("C")
      ->required();
  verb->add_option("--workload", options->workload, "YAML or JSON file, or a name in scenarios/workloads")
      ->type_name("W")
      ->required();
  verb->add_option("--nodes", options->nodes, "Number of nodes, instead of the cluster file's")->type_name("N");
  verb->add_option("--global-batch", options->global_batch, "Samples a step, instead of the workload file's")
      ->type_name("N");
  verb->add_option("--space", options->space, "YAML or JSON that pins or bounds what is searched")->type_name("FILE");
  verb->add_option("--profile", options->profile, "Measured blocks and links, which take the place of formulas")
      ->type_name("FILE");
  verb->add_option("--top", options->top, "Compare the best so many plans (default 1)")->type_name("K");
  verb->add_option("--time-limit", options->time_limit_s, "Seconds after which the best so far is given (default 60)")
      ->type_name("S")
      ->check(CLI::Range(0.001, 1e6));
  verb->add_option("--out", options->out, "Write the plan document there")->type_name("FILE");
  verb->add_flag("--json", options->json, "Print one JSON object");
  verb->footer(
      "Examples:\n"
      "  weft plan --model qwen2-vl-7b --cluster dgx_h100 --workload vl_sft --out plan.json\n"
      "  weft plan --model qwen2-vl-72b --cluster ascend_910b_16 --nodes 8 --workload vl_sft --global-batch 1024 --top "
      "5");
  verb->callback([options, &run] { run = [options] { return search(*options); }; });
}

}  // namespace weft
