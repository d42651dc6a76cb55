#include "weft/cli/library_text.h"

#include <fmt/format.h>

#include "weft/cli/table.h"

namespace weft {
namespace {

std::vector<PredictedRun> of_table(const LibraryReport& report, const std::vector<PredictedRun>& runs, size_t table) {
  std::vector<PredictedRun> found;
  for (size_t i = 0; i < runs.size(); ++i) {
    if (report.runs[i].table == table) found.push_back(runs[i]);
  }
  return found;
}

std::string accuracy_text(const std::vector<PredictedRun>& runs) {
  const Accuracy accuracy = accuracy_of(runs);
  return fmt::format("mean error {:.1f} %, max {:.1f} %", accuracy.mean_error_percent, accuracy.max_error_percent);
}

Json accuracy_json(const std::vector<PredictedRun>& runs) {
  const Accuracy accuracy = accuracy_of(runs);
  return {{"mean_error_percent", accuracy.mean_error_percent}, {"max_error_percent", accuracy.max_error_percent}};
}

std::string rounded_text(double value) {
  return fmt::format("{:.4g}", value);
}

}  // namespace

std::string to_text(const LibraryReport& report) {
  std::string text;
  for (size_t t = 0; t < report.library.tables.size(); ++t) {
    const PublishedTable& table = report.library.tables[t];
    const std::vector<PredictedRun> predicted = of_table(report, report.predicted, t);
    const std::vector<PredictedRun> left_out = of_table(report, report.left_out, t);
    text += fmt::format("{}\n", table.source);
    Table rows;
    rows.add({fmt::format("{} on {}", table.software, table.cluster.name), "measured ms", "predicted ms", "error",
              "model left out"});
    for (size_t i = 0; i < predicted.size(); ++i) {
      rows.add({predicted[i].name, fmt::format("{:.1f}", predicted[i].measured_ms),
                fmt::format("{:.1f}", predicted[i].predicted_ms),
                fmt::format("{:+.1f} %", predicted[i].error_percent()),
                fmt::format("{:+.1f} %", left_out[i].error_percent())});
    }
    text += rows.text();
    text += fmt::format("{}; models left out: {}\n\n", accuracy_text(predicted), accuracy_text(left_out));
  }
  text += fmt::format("all {} runs of {} tables: {}\n", report.predicted.size(), report.library.tables.size(),
                      accuracy_text(report.predicted));
  text += fmt::format("each model by a fit to the others: {}\n", accuracy_text(report.left_out));
  return text;
}

Json to_json(const LibraryReport& report) {
  Json tables = Json::array();
  for (size_t t = 0; t < report.library.tables.size(); ++t) {
    const PublishedTable& table = report.library.tables[t];
    const std::vector<PredictedRun> predicted = of_table(report, report.predicted, t);
    const std::vector<PredictedRun> left_out = of_table(report, report.left_out, t);
    Json rows = Json::array();
    for (size_t i = 0; i < predicted.size(); ++i) {
      rows.push_back({{"name", predicted[i].name},
                      {"measured_ms", predicted[i].measured_ms},
                      {"predicted_ms", predicted[i].predicted_ms},
                      {"error_percent", predicted[i].error_percent()},
                      {"left_out_error_percent", left_out[i].error_percent()}});
    }
    Json one = {{"source", table.source},
                {"url", table.url},
                {"cluster", table.cluster.name},
                {"software", table.software},
                {"not_alike", table.not_alike},
                {"left_out", accuracy_json(left_out)},
                {"rows", rows}};
    one.update(accuracy_json(predicted));
    tables.push_back(one);
  }
  Json json = {{"tables", tables}, {"runs", report.predicted.size()}, {"left_out", accuracy_json(report.left_out)}};
  json.update(accuracy_json(report.predicted));
  return json;
}

std::string to_yaml(const JointFit& fit) {
  std::string text = "# Fitted to all tables of scenarios/validation/runs together.\n";
  for (const auto& [name, efficiency] : fit.hardware) {
    text += fmt::format("{}:\n", name);
    for (const EfficiencyField& field : efficiency_fields())
      text += fmt::format("  {}: {}\n", field.name, rounded_text(efficiency.*field.value));
  }
  for (const auto& [name, software] : fit.software) {
    text += fmt::format("{}:\n", name);
    for (const EfficiencyField& field : software_fields()) {
      const Efficiency none, with = software.applied_to(none);
      if (with.*field.value != none.*field.value)
        text += fmt::format("  {}: {}\n", field.name, rounded_text(with.*field.value));
    }
  }
  return text;
}

}  // namespace weft
