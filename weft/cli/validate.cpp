#include <cstdio>
#include <memory>
#include <optional>

#include <fmt/format.h>

#include "weft/base/file.h"
#include "weft/base/output_path.h"
#include "weft/base/text.h"
#include "weft/cli/count_option.h"
#include "weft/cli/installation.h"
#include "weft/cli/json_output.h"
#include "weft/cli/library_text.h"
#include "weft/cli/table.h"
#include "weft/cli/terminal_line.h"
#include "weft/cli/validate_run.h"
#include "weft/cli/verbs.h"
#include "weft/spec/cluster_yaml.h"
#include "weft/validate/measurements.h"
#include "weft/validate/published.h"
#include "weft/validate/validation.h"

namespace weft {
namespace {

struct ValidateOptions {
  bool published = false;
  std::optional<std::string> measurements, family, cluster, folds, calibrate_to, fit_to;
  ValidateRunOptions own;  ///< runs of weft train
  bool json = false;
};

constexpr IntegerRange kFoldRange{2, 100};

/// Everything that was asked for, predicted.
struct Validation {
  Cluster cluster;
  std::optional<Published> published;
  std::vector<PreparedRun> published_runs;
  std::vector<PreparedRun> measured_runs;
  std::vector<PredictedRun> predicted;  ///< published first
  std::vector<PredictedRun> left_out;
  std::vector<PredictedRun> folded;
  std::vector<MatchingMemory> memory;
  std::optional<LibraryReport> library;  ///< tables of other systems
  std::vector<std::string> warnings;
};

Error bad_flag(std::string flag, std::string problem, std::string advice) {
  return {.source = std::move(flag), .problem = std::move(problem), .advice = std::move(advice)};
}

std::optional<Error> find_bad_flag(const ValidateOptions& o) {
  if (!o.published && !o.measurements)
    return bad_flag("validate", "nothing to compare with",
                    "Give --plan FILE and --run DIR, --runs DIR ..., --published or --measurements FILE.");
  if (o.own.profile || o.own.trace)
    return bad_flag(o.own.profile ? "--profile" : "--trace", "is given without a run",
                    "Add --plan FILE and --run DIR.");
  if (o.measurements && !o.cluster)
    return bad_flag("--cluster", "is missing", "Name the cluster on which the measurements were taken.");
  if (o.measurements && !o.family)
    return bad_flag("--model-family", "is missing", "Say what was trained: --model-family gpt.");
  if (o.family && *o.family != "gpt")
    return bad_flag("--model-family",
                    fmt::format("is {}, gpt is the only one that tables are read for", in_quotes(*o.family)),
                    "Give --model-family gpt.");
  if (o.folds) {
    const Result<int64_t> folds = parse_count("--folds", *o.folds, kFoldRange);
    if (!folds) return folds.error();
  }
  if (o.fit_to && !(o.published && !o.cluster))
    return bad_flag("--fit-to", "needs all published tables", "Give --published, and no --cluster.");
  if (o.folds && !o.measurements)
    return bad_flag("--folds", "is given without measurements", "Add --measurements FILE.");
  return std::nullopt;
}

Result<Validation> compare(const ValidateOptions& options) {
  const Scenarios scenarios = find_scenarios();
  Validation v;
  std::string cluster_name = options.cluster.value_or("");
  if (options.published) {
    WEFT_TRY(v.published, read_published(scenarios.root() / "validation" / "reducing_activation_recomputation.yaml"));
    if (!options.cluster) cluster_name = v.published->cluster;
  }
  WEFT_TRY(v.cluster, scenarios.cluster(cluster_name));
  v.warnings = unusual_values(v.cluster);
  if (v.published) {
    WEFT_TRY(v.published_runs, prepare(v.published->runs, v.cluster));
    v.predicted = predict(v.published_runs, v.cluster.efficiency);
    for (const PublishedMemory& memory : v.published->memory) {
      WEFT_TRY(const MatchingMemory ours, matching_memory(memory, v.cluster));
      v.memory.push_back(ours);
    }
  }
  // Tables name the clusters that they were taken on.
  if (options.published && !options.cluster) {
    LibraryReport report;
    WEFT_TRY(report.library, read_run_library(scenarios));
    WEFT_TRY(report.runs, prepare(report.library));
    report.predicted = predict(report.runs, shipped(report.library));
    v.library = std::move(report);
  }
  if (options.measurements) {
    WEFT_TRY(const std::vector<TrainingRun> runs, read_measurements(*options.measurements));
    WEFT_TRY(v.measured_runs, prepare(runs, v.cluster));
    const std::vector<PredictedRun> predicted = predict(v.measured_runs, v.cluster.efficiency);
    for (std::string& warning : suspicions(predicted)) v.warnings.push_back(std::move(warning));
    v.predicted.insert(v.predicted.end(), predicted.begin(), predicted.end());
  }
  return v;
}

/// Fits that leave something out, to see how far they carry.
Result<Validation> with_fits(Validation v, const ValidateOptions& options) {
  if (v.published) {
    const size_t models = v.published->memory.size();
    const size_t per_model = v.published_runs.size() / models;
    v.left_out = cross_validate(
        v.published_runs, [&](size_t run) { return run / per_model; }, models,
        [&](size_t done) { show_progress(fmt::format("published: {} of {} models left out", done, models)); });
  }
  if (v.library) {
    v.library->left_out = leave_models_out(v.library->runs, [](size_t done, size_t all) {
      show_progress(fmt::format("published tables: {} of {} models left out", done, all));
    });
  }
  if (options.folds) {
    WEFT_TRY(const int64_t folds, parse_count("--folds", *options.folds, kFoldRange));
    const auto count = static_cast<size_t>(folds);
    if (count > v.measured_runs.size())
      return bad_flag("--folds", fmt::format("is {}, but there are only {} runs", folds, v.measured_runs.size()),
                      "Give fewer.");
    const Folds parts = folds_of(v.measured_runs, count);
    if (!parts.has_whole_models)
      v.warnings.push_back(
          fmt::format("--folds is {}, but the runs are of {} only: each part is predicted by a fit "
                      "that has seen its models",
                      folds, counted(static_cast<int64_t>(parts.num_models), "model")));
    v.folded = cross_validate(
        v.measured_runs, [&](size_t run) { return parts.part_of_run[run]; }, count,
        [&](size_t done) { show_progress(fmt::format("measurements: {} of {} folds", done, count)); });
  }
  show_progress("");
  return v;
}

/// Fits all runs and writes the cluster with what came out.
Result<Efficiency> calibrate_all(const Validation& v, const std::string& path) {
  std::vector<const std::vector<PreparedRun>*> tables;
  if (!v.published_runs.empty()) tables.push_back(&v.published_runs);
  if (!v.measured_runs.empty()) tables.push_back(&v.measured_runs);
  show_progress("calibrating");
  const Efficiency fitted = calibrate(weighted(tables));
  show_progress("");
  // What the runs say nothing about stays as it was.
  Efficiency efficiency = v.cluster.efficiency;
  for (const FittedParameter& parameter : fitted_parameters()) efficiency.*parameter.value = fitted.*parameter.value;
  efficiency.passes_per_operator = fitted.passes_per_operator;
  Cluster cluster = v.cluster;
  cluster.efficiency = rounded(efficiency);
  cluster.calibrated_to = fmt::format("{} measured runs", v.published_runs.size() + v.measured_runs.size());
  const std::string comment = fmt::format("{} with its efficiency calibrated to {} measured runs.", v.cluster.name,
                                          v.published_runs.size() + v.measured_runs.size());
  if (auto error = write_file(path, to_yaml(cluster, comment))) return *error;
  return cluster.efficiency;
}

Json to_json(const std::vector<PredictedRun>& runs) {
  Json rows = Json::array();
  for (const PredictedRun& run : runs) {
    rows.push_back({{"name", run.name},
                    {"measured_ms", run.measured_ms},
                    {"predicted_ms", run.predicted_ms},
                    {"error_percent", run.error_percent()}});
  }
  return rows;
}

Json to_json(const Validation& v, const std::optional<Efficiency>& calibrated) {
  const Accuracy accuracy = accuracy_of(v.predicted);
  Json json = {{"cluster", v.cluster.name},
               {"mean_error_percent", accuracy.mean_error_percent},
               {"max_error_percent", accuracy.max_error_percent}};
  if (!v.left_out.empty()) json["leave_one_out_percent"] = accuracy_of(v.left_out).mean_error_percent;
  if (!v.left_out.empty()) json["leave_one_out_max_percent"] = accuracy_of(v.left_out).max_error_percent;
  if (!v.folded.empty()) json["cross_validation_percent"] = accuracy_of(v.folded).mean_error_percent;
  if (!v.folded.empty()) json["cross_validation_max_percent"] = accuracy_of(v.folded).max_error_percent;
  if (!v.folded.empty()) json["cross_validation_rows"] = to_json(v.folded);
  json["rows"] = to_json(v.predicted);
  if (v.published) {
    json["source"] = v.published->source;
    Json memory = Json::array();
    for (size_t i = 0; i < v.memory.size(); ++i) {
      const PublishedMemory& p = v.published->memory[i];
      const MatchingMemory& m = v.memory[i];
      memory.push_back(
          {{"name", p.name},
           {"published",
            {{"layer_gib", p.layer_gib},
             {"layer_gib_selective_sequence_parallel", p.layer_gib_selective_sequence_parallel},
             {"state_gib", p.state_gib}}},
           {"predicted",
            {{"layer_gib", m.layer_gib},
             {"layer_gib_selective_sequence_parallel", m.layer_gib_selective_sequence_parallel},
             {"state_gib", m.state_gib}}},
           {"full_prediction_gib", m.full_prediction_gib},
           {"full_prediction_gib_selective_sequence_parallel", m.full_prediction_gib_selective_sequence_parallel}});
    }
    json["memory"] = memory;
  }
  if (v.library) json["published"] = to_json(*v.library);
  if (calibrated) json["calibrated"] = to_json(*calibrated);
  json["warnings"] = v.warnings;
  return json;
}

std::string accuracy_line(const std::string& what, const std::vector<PredictedRun>& runs) {
  const Accuracy accuracy = accuracy_of(runs);
  return fmt::format("{}: mean error {:.2f} %, max {:.2f} %\n", what, accuracy.mean_error_percent,
                     accuracy.max_error_percent);
}

std::string memory_text(const Validation& v) {
  Table table;
  table.add({"GiB a device", "layers", "ours", "layers, sp + selective", "ours", "states", "ours", "whole prediction"});
  for (size_t i = 0; i < v.memory.size(); ++i) {
    const PublishedMemory& p = v.published->memory[i];
    const MatchingMemory& m = v.memory[i];
    const auto gib = [](double value) { return fmt::format("{:.2f}", value); };
    table.add({p.name, gib(p.layer_gib), gib(m.layer_gib), gib(p.layer_gib_selective_sequence_parallel),
               gib(m.layer_gib_selective_sequence_parallel), gib(p.state_gib), gib(m.state_gib),
               gib(m.full_prediction_gib) + ", " + gib(m.full_prediction_gib_selective_sequence_parallel)});
  }
  return table.text();
}

std::string to_text(const Validation& v, const ValidateOptions& options) {
  std::string text;
  if (v.published) text += v.published->source + "\n";
  Table table;
  table.add({"run on " + v.cluster.name, "measured ms", "predicted ms", "error"});
  for (const PredictedRun& run : v.predicted) {
    table.add({run.name, fmt::format("{:.1f}", run.measured_ms), fmt::format("{:.1f}", run.predicted_ms),
               fmt::format("{:+.2f} %", run.error_percent())});
  }
  const bool is_own = v.published && !options.cluster;
  text += table.text() +
          accuracy_line(v.cluster.name + (is_own ? " (calibrated to these runs and others)" : ""), v.predicted);
  if (!v.left_out.empty()) text += accuracy_line("each published model by a fit to the others", v.left_out);
  if (!v.folded.empty()) text += accuracy_line(fmt::format("{}-fold cross-validation", *options.folds), v.folded);
  if (v.published) text += "\n" + memory_text(v);
  if (v.library) text += "\n" + to_text(*v.library);
  if (options.calibrate_to) text += fmt::format("calibrated cluster written to {}\n", *options.calibrate_to);
  for (const std::string& warning : v.warnings) text += "warning: " + warning + "\n";
  return text;
}

Result<std::string> validate(const ValidateOptions& options) {
  if (options.own.is_asked()) {
    if (options.published || options.measurements)
      return bad_flag(options.own.runs.empty() ? "--run" : "--runs", "is given with runs of others",
                      "Give --published and --measurements in a call of their own.");
    ValidateRunOptions own = options.own;
    own.json = options.json;
    return validate_runs(own);
  }
  if (auto error = find_bad_flag(options)) return *error;
  if (auto error = find_bad_output({{"--calibrate-to", options.calibrate_to}, {"--fit-to", options.fit_to}},
                                   {{"--measurements", options.measurements}, {"--cluster", options.cluster}}))
    return *std::move(error);
  WEFT_TRY(Validation compared, compare(options));
  WEFT_TRY(const Validation v, with_fits(std::move(compared), options));
  std::optional<Efficiency> calibrated;
  if (options.calibrate_to) {
    WEFT_TRY(calibrated, calibrate_all(v, *options.calibrate_to));
  }
  if (options.fit_to) {
    show_progress("fitting all tables");
    const JointFit found = fit(v.library->runs);
    show_progress("");
    if (auto error = write_file(*options.fit_to, to_yaml(found))) return *error;
  }
  if (options.json) return json_output(to_json(v, calibrated));
  return to_text(v, options);
}

}  // namespace

void add_validate(Verbs& verbs) {
  auto options = std::make_shared<ValidateOptions>();
  Verb& verb = verbs.emplace_back(
      Verb{.name = "validate", .summary = "Compare predictions with measured runs, and calibrate a cluster to them"});
  verb.option("--plan", options->own.plan, "The plan of --run (default: the one in its folder)").named("FILE");
  verb.option("--run", options->own.run, "Folder of a run of 'weft train': its steps against their predictions")
      .named("DIR");
  verb.option("--runs", options->own.runs, "Folders of several runs: errors over all, by model and by device")
      .named("DIR ...");
  verb.option("--profile", options->own.profile, "With runs: measured blocks and links to predict with").named("FILE");
  verb.option("--trace", options->own.trace,
              "With --run: write both timelines of a median step for Perfetto or chrome://tracing")
      .named("FILE");
  verb.option("--published", options->published, "Runs that papers and systems published (scenarios/validation)");
  verb.option("--measurements", options->measurements, "Your own table of runs, as CSV").named("FILE");
  verb.option("--model-family", options->family, "What the table's runs trained: gpt").named("F");
  verb.option("--cluster", options->cluster,
              "YAML or JSON file, or a name in scenarios/clusters (default with --published: the paper's)")
      .named("C");
  verb.option("--folds", options->folds,
              "Predict each of N parts of the measurements, models kept whole, by a fit to the others (2 to 100; "
              "default: no fit)")
      .named("N");
  verb.option("--calibrate-to", options->calibrate_to,
              "Fit the cluster's efficiency to all these runs and write the cluster there")
      .named("FILE.yaml");
  verb.option("--fit-to", options->fit_to,
              "Fit machines and systems of all published tables together and write what came out there")
      .named("FILE.yaml");
  verb.option("--json", options->json, "Print one JSON object");
  verb.footer =
      "Examples:\n"
      "  weft validate --plan plan.json --run runs/first --profile profile.json\n"
      "  weft validate --runs runs/first runs/second\n"
      "  weft validate --published\n"
      "  weft validate --measurements runs.csv --model-family gpt --cluster dgx_a100_80g --folds 5\n"
      "  weft validate --measurements runs.csv --model-family gpt --cluster dgx_a100_80g --calibrate-to mine.yaml";
  verb.run = [options] { return validate(*options); };
}

}  // namespace weft
