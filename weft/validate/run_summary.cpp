#include "weft/validate/run_summary.h"

#include <cmath>

#include <fmt/format.h>

#include "weft/base/fields.h"

namespace weft {
namespace {

constexpr NumberRange kErrorRange{-100, 1e9};

RunErrors errors_of(const std::vector<RunSummary>& runs,
                    const std::function<std::optional<double>(const RunSummary&)>& error) {
  RunErrors errors;
  for (const RunSummary& run : runs) {
    const std::optional<double> percent = error(run);
    if (!percent) continue;
    ++errors.runs;
    errors.mean_percent += std::abs(*percent);
    errors.mean_noise_percent += run.noise_percent;
    if (errors.runs > 1 && std::abs(*percent) <= std::abs(errors.worst_percent)) continue;
    errors.worst_percent = *percent;
    errors.worst_run = run.run;
  }
  if (errors.runs == 0) return errors;
  errors.mean_percent /= static_cast<double>(errors.runs);
  errors.mean_noise_percent /= static_cast<double>(errors.runs);
  return errors;
}

}  // namespace

RunSummary summary_of(const std::string& run, const Plan& plan, const RunRecord& record, const Profile* profile,
                      const RunComparison& comparison) {
  RunSummary summary{.run = run,
                     .model = plan.model.name,
                     .device = fmt::format("{} ({})", plan.cluster.name, record.header.device),
                     .profile = profile == nullptr ? "" : profile->source,
                     .step_time_error_percent = comparison.step_ms.error_percent(),
                     .noise_percent = comparison.noise_percent};
  if (const ComparedRank* fullest = comparison.fullest())
    summary.memory_error_percent = fullest->memory_bytes->error_percent();
  return summary;
}

Json to_json(const RunSummary& summary, const RunComparison& comparison) {
  Json json = {{"weft_prediction", 1}, {"model", summary.model}, {"device", summary.device}};
  if (!summary.profile.empty()) json["profile"] = summary.profile;
  json.update(to_json(comparison));
  return json;
}

Result<std::optional<RunSummary>> read_prediction(const std::filesystem::path& run_folder) {
  const std::filesystem::path path = run_folder / kPredictionName;
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return std::optional<RunSummary>();
  WEFT_TRY(const Document document, read_document(path, {.max_bytes = 64u << 20, .max_values = 5'000'000}));
  Findings findings(document.source);
  Fields fields(document, findings);
  fields.integer("weft_prediction", {1, 1});
  RunSummary summary{.run = run_folder.string(),
                     .model = fields.text("model"),
                     .device = fields.text("device"),
                     .profile = fields.text_or("profile", ""),
                     .step_time_error_percent = fields.number("step_time_error_percent", kErrorRange),
                     .noise_percent = fields.number("noise_percent", {0, 1e9})};
  if (!fields.is_null("memory_error_percent"))
    summary.memory_error_percent = fields.number("memory_error_percent", kErrorRange);
  if (findings.first()) return *findings.first();
  return std::optional(std::move(summary));
}

RunErrors step_errors(const std::vector<RunSummary>& runs) {
  return errors_of(runs, [](const RunSummary& run) { return std::optional(run.step_time_error_percent); });
}

RunErrors memory_errors(const std::vector<RunSummary>& runs) {
  return errors_of(runs, [](const RunSummary& run) { return run.memory_error_percent; });
}

std::map<std::string, std::vector<RunSummary>> grouped_by(const std::vector<RunSummary>& runs,
                                                          std::string RunSummary::*field) {
  std::map<std::string, std::vector<RunSummary>> groups;
  for (const RunSummary& run : runs) groups[run.*field].push_back(run);
  return groups;
}

}  // namespace weft
