#include "weft/exchange/import.h"

#include <memory>
#include <optional>

#include <fmt/format.h>

#include "weft/base/file.h"
#include "weft/base/output_path.h"
#include "weft/base/text.h"
#include "weft/cli/advice.h"
#include "weft/cli/count_option.h"
#include "weft/cli/exported_text.h"
#include "weft/cli/import_text.h"
#include "weft/cli/installation.h"
#include "weft/cli/json_output.h"
#include "weft/cli/report_text.h"
#include "weft/cli/search_defaults.h"
#include "weft/cli/terminal_line.h"
#include "weft/cli/verbs.h"
#include "weft/exchange/file_difference.h"
#include "weft/exchange/settings_edit.h"
#include "weft/exchange/yaml_text.h"
#include "weft/meaning/training_ranges.h"
#include "weft/plan/plan_json.h"
#include "weft/simulate/plan_simulator.h"

namespace weft {
namespace {

struct ImportOptions {
  std::vector<std::string> from, variables;
  std::optional<std::string> arguments, model, cluster, workload, nodes, devices_per_node, version, steps, out,
      config_out;
  double time_limit_s = 20;
  bool is_lenient = false;
  bool advises = false;
  bool json = false;
};

/// Scripts and settings are small; a path to weights is a mistake.
constexpr size_t kMostBytes = size_t{4} << 20;

Error missing_name(const char* flag, const std::string& problem) {
  return {.source = flag, .problem = problem, .advice = "'weft import --help' shows examples."};
}

Result<std::optional<int64_t>> count_of(const char* flag, const std::optional<std::string>& text, int64_t most) {
  if (!text) return std::optional<int64_t>();
  WEFT_TRY(const int64_t count, parse_count(flag, *text, {1, most}));
  return std::optional(count);
}

Result<ShellVariables> variables_of(const std::vector<std::string>& given) {
  ShellVariables variables;
  for (const std::string& text : given) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0)
      return missing_name("--set", fmt::format("has {}, NAME=VALUE is needed", in_quotes(text)));
    variables[text.substr(0, equals)] = text.substr(equals + 1);
  }
  return variables;
}

/// Where a system runs, unless somebody says otherwise.
const char* usual_cluster(Target system) {
  return system == Target::kMegatron ? "dgx_h100" : "ascend_910b_8";
}

Result<ImportRequest> request_of(const ImportOptions& options) {
  const Scenarios scenarios = find_scenarios();
  ImportRequest request;
  if (options.from.empty()) return missing_name("--from", "names no system");
  auto system = parse_source(options.from.front());
  if (!system) {
    Error error = system.error();
    error.source = "--from";
    return error;
  }
  request.system = *system;
  for (size_t i = 1; i < options.from.size(); ++i) {
    WEFT_TRY(std::string text, read_file(options.from[i], kMostBytes));
    request.files.push_back({options.from[i], std::move(text)});
  }
  request.arguments = options.arguments.value_or("");
  if (request.files.empty() && request.arguments.empty())
    return missing_name("--from", fmt::format("names {}, but no files of it", name_of(request.system)));
  WEFT_TRY(request.variables, variables_of(options.variables));
  if (options.model) {
    WEFT_TRY(request.model, scenarios.model(*options.model));
  } else {
    for (const std::string& name : scenarios.names("models")) {
      if (auto model = scenarios.model(name)) request.known_models.push_back(*std::move(model));
    }
  }
  WEFT_TRY(request.cluster, scenarios.cluster(options.cluster.value_or(usual_cluster(request.system))));
  if (options.workload) {
    WEFT_TRY(request.workload, scenarios.workload(*options.workload));
  } else {
    for (const char* name : {"vl_sft", "omni_short"}) {
      if (auto workload = scenarios.workload(name)) request.known_workloads.push_back(*std::move(workload));
    }
  }
  WEFT_TRY(request.nodes, count_of("--nodes", options.nodes, kMostNodes));
  WEFT_TRY(request.devices_per_node, count_of("--devices-per-node", options.devices_per_node, kMostDevicesPerNode));
  WEFT_TRY(request.steps, count_of("--steps", options.steps, kStepRange.max));
  request.version = options.version.value_or("");
  request.is_lenient = options.is_lenient;
  return request;
}

/// Of the files that change, in the form that patch applies.
std::string differences_of(const ImportRequest& request, const SettingsEdit& edit) {
  std::string text;
  for (const SettingsFile& file : edit.files) {
    for (const SettingsFile& own : request.files) {
      if (own.name == file.name) text += file_difference(own.name, own.text, file.text);
    }
  }
  return text;
}

/// The better plan as a difference of the user's own files, or as settings to write into them.
std::string edit_text(const ImportRequest& request, const SettingsEdit& edit) {
  std::string text = "settings to change:\n";
  for (const SettingChange& change : edit.changes) {
    const std::string line =
        fmt::format("{}: {} -> {}", change.key, change.before.empty() ? "not given" : change.before,
                    change.after.empty() ? "leave it out" : change.after);
    text += fmt::format("  {}\n", printable_line(line));
  }
  if (edit.changes.empty()) text += "  none\n";
  if (!edit.files.empty()) text += "\n" + differences_of(request, edit);
  if (edit.files.empty() && !edit.changes.empty())
    text += "\nNo change of single lines was found that gives the plan when the files are read again. As a whole:\n" +
            shown(edit.exported);
  return text;
}

/// What is found instead of the plan that was read, and how to get there.
Result<std::string> advised(const ImportOptions& options, const ImportRequest& request, const ImportedRun& run) {
  const AdviceOptions how{.system = request.system, .search = default_search(options.time_limit_s)};
  if (run.searches) {
    WEFT_TRY(const Advice advice, advise_search(run.plan, how));
    if (options.out) {
      if (auto error = write_file(*options.out, plan_to_text(advice.after))) return *error;
    }
    WEFT_TRY(const std::vector<ExportedFile> files, export_plan(advice.after, request.system));
    if (options.json) return json_output(to_json(advice));
    return keys_text(run) + "\nfound: " + settings_line(advice.after) + "\n" +
           to_text(advice.after, advice.after_report) + "\n" + shown(files);
  }
  WEFT_TRY(const Advice advice, advise(run.plan, how));
  if (options.out) {
    if (auto error = write_file(*options.out, plan_to_text(advice.answer()))) return *error;
  }
  std::optional<SettingsEdit> edit;
  if (advice.is_better) {
    WEFT_TRY(edit, edit_settings(request, run, advice.after));
  }
  if (options.json) {
    Json json = to_json(advice);
    json["settings"] = Json::array();
    for (const SettingChange& change : edit ? edit->changes : std::vector<SettingChange>())
      json["settings"].push_back({{"key", change.key}, {"before", change.before}, {"after", change.after}});
    json["difference"] = edit ? differences_of(request, *edit) : "";
    return json_output(json);
  }
  std::string text = keys_text(run) + "\n" + to_text(advice);
  if (edit) text += "\n" + edit_text(request, *edit);
  if (options.out) text += fmt::format("the better plan written to {}\n", *options.out);
  return text;
}

Result<std::string> run_import(const ImportOptions& options) {
  if (auto error = find_bad_output({{"--out", options.out}, {"--config-out", options.config_out}}))
    return *std::move(error);
  WEFT_TRY(const ImportRequest request, request_of(options));
  WEFT_TRY(ImportedRun run, import_settings(request));
  if (!options.cluster)
    run.keys.push_back({.key = "--cluster",
                        .value = usual_cluster(request.system),
                        .fate = KeyFate::kDefault,
                        .meaning = "the devices and links",
                        .place = {}});
  if (options.config_out && run.config.is_null()) {
    return Error{.source = "--config-out",
                 .problem = fmt::format("the files are no whole training configuration: {}", run.no_config),
                 .advice = "Leave --config-out out for the plan alone."};
  }
  if (options.advises || run.searches) {
    if (options.config_out) {
      if (auto error = write_file(*options.config_out, yaml_of(run.config))) return *error;
    }
    return advised(options, request, run);
  }
  WEFT_TRY(const PlanReport report, simulate_plan(run.plan, {}));
  run.plan.predicted = prediction_of(report);
  if (options.out) {
    if (auto error = write_file(*options.out, plan_to_text(run.plan))) return *error;
  }
  if (options.config_out) {
    if (auto error = write_file(*options.config_out, yaml_of(run.config))) return *error;
  }
  if (options.json) return json_output(import_json(run, report));
  std::string text = keys_text(run) + "\n" + settings_line(run.plan) + "\n" + to_text(run.plan, report);
  if (options.out) text += fmt::format("plan written to {}\n", *options.out);
  if (options.config_out) text += fmt::format("training configuration written to {}\n", *options.config_out);
  return text;
}

}  // namespace

void add_import(Verbs& verbs) {
  auto options = std::make_shared<ImportOptions>();
  Verb& verb = verbs.emplace_back(
      Verb{.name = "import", .summary = "Read the settings of another training system as a plan, and price it"});
  verb.option("--from", options->from,
              "megatron, mindspeed-mm, mindformers or mindspeed-rl, then its files: scripts, YAML, model.json")
      .named("SYSTEM FILES...")
      .required();
  verb.option("--args", options->arguments,
              "Further arguments, behind those of the files: --args=\"--vocab-size 128256\"")
      .named("LINE");
  verb.option("--set", options->variables,
              "Variables of scripts, which win over what they assign; 1, 2 are its arguments")
      .named("NAME=VALUE...");
  verb.option("--model", options->model,
              "Hugging Face config.json, a folder, or a name in scenarios/models (default: what the files describe)")
      .named("M");
  verb.option("--cluster", options->cluster,
              "YAML or JSON file, or a name in scenarios/clusters (default: dgx_h100, or ascend_910b_8)")
      .named("C");
  verb.option("--nodes", options->nodes, "Number of nodes, instead of the files'").named("N");
  verb.option("--devices-per-node", options->devices_per_node, "Devices of a node, instead of the files'").named("N");
  verb.option("--workload", options->workload,
              "YAML or JSON file, or a name in scenarios/workloads (default: text of the files' length)")
      .named("W");
  verb.option("--system-version", options->version, "The release whose defaults are taken (docs/manual/import.md)")
      .named("VERSION");
  verb.option("--steps", options->steps, "Steps of the training, where the files count epochs").named("N");
  verb.option("--lenient", options->is_lenient, "Go on without settings that are not understood");
  verb.option("--advise", options->advises,
              "Search for a better plan in that system's settings, and say which change gives how much");
  verb.option("--time-limit", options->time_limit_s, "Seconds for that search (default: 20)")
      .named("S")
      .within(0.001, 1e6);
  verb.option("--out", options->out, "Write the plan document there; with --advise the better one").named("FILE");
  verb.option("--config-out", options->config_out, "Write the training configuration there").named("FILE");
  verb.option("--json", options->json, "Print one JSON object");
  verb.footer =
      "Nothing is ever run: what a script computes with commands is refused by name and line where it matters.\n"
      "Examples:\n"
      "  weft import --from megatron train.sh --out plan.json --config-out train.yaml\n"
      "  weft import --from mindspeed-mm finetune.sh model.json --cluster ascend_910b_8\n"
      "  weft import --from mindformers finetune.yaml --model llama3-8b --advise";
  verb.run = [options] { return run_import(*options); };
}

}  // namespace weft
