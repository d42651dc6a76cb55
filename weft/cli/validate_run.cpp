#include "weft/cli/validate_run.h"

#include <fmt/format.h>

#include "weft/base/file.h"
#include "weft/base/output_path.h"
#include "weft/cli/json_output.h"
#include "weft/cli/legal_plan.h"
#include "weft/cli/run_text.h"
#include "weft/cli/terminal_line.h"

namespace weft {
namespace {

std::string plan_of_run(const std::string& run) {
  return (std::filesystem::path(run) / "plan.json").string();
}

std::optional<Error> find_bad_flags(const ValidateRunOptions& o) {
  const auto refuse = [](const char* flag, const char* problem, const char* advice) {
    return Error{.source = flag, .problem = problem, .advice = advice};
  };
  if (!o.runs.empty() && (o.plan || o.run))
    return refuse("--runs", "is given with --plan or --run",
                  "Several runs have their plans in their folders: give --runs alone.");
  if (!o.runs.empty() && o.trace)
    return refuse("--trace", "is given with --runs", "It is of one run: give --plan and --run.");
  if (o.plan && !o.run) return refuse("--run", "is missing", "Give --run DIR, the folder of a run of the plan.");
  return find_bad_output({{"--trace", o.trace}});
}

Result<RunComparison> compare_folder(const Plan& plan, const std::string& run, const Profile* profile,
                                     RunRecord& record) {
  WEFT_TRY(record, read_run_record(run));
  return compare_run(plan, record, profile);
}

Result<RunSummary> summarize(const std::string& run, const Profile* profile) {
  if (profile == nullptr) {
    WEFT_TRY(std::optional<RunSummary> kept, read_prediction(run));
    if (kept) return *std::move(kept);
  }
  RunRecord record;
  WEFT_TRY(record, read_run_record(run));
  WEFT_TRY(const Plan plan, read_legal_plan(plan_of_run(run)));
  WEFT_TRY(const RunComparison comparison, compare_run(plan, record, profile));
  return summary_of(run, plan, record, profile, comparison);
}

}  // namespace

Result<RunComparison> keep_comparison(const Plan& plan, const std::string& run_folder, const Profile* profile) {
  RunRecord record;
  WEFT_TRY(RunComparison comparison, compare_folder(plan, run_folder, profile, record));
  const RunSummary summary = summary_of(run_folder, plan, record, profile, comparison);
  const std::string text = json_output(to_json(summary, comparison));
  if (auto error = write_file(std::filesystem::path(run_folder) / kPredictionName, text)) return *std::move(error);
  return comparison;
}

Result<std::string> validate_runs(const ValidateRunOptions& options) {
  if (auto error = find_bad_flags(options)) return *std::move(error);
  std::optional<Profile> profile;
  if (options.profile) {
    WEFT_TRY(profile, read_profile_file(*options.profile));
  }
  const Profile* given = profile ? &*profile : nullptr;
  if (!options.runs.empty()) {
    std::vector<RunSummary> summaries;
    for (const std::string& run : options.runs) {
      show_progress(fmt::format("comparing {}", run));
      WEFT_TRY(RunSummary summary, summarize(run, given));
      summaries.push_back(std::move(summary));
    }
    show_progress("");
    return options.json ? json_output(to_json(summaries)) : to_text(summaries);
  }
  RunRecord record;
  WEFT_TRY(record, read_run_record(*options.run));
  WEFT_TRY(const Plan ran, read_legal_plan(plan_of_run(*options.run)));
  Plan plan = ran;
  if (options.plan) {
    WEFT_TRY(plan, read_legal_plan(*options.plan));
    if (auto error = check_same_run(plan, ran, *options.run)) return *std::move(error);
  }
  show_progress("playing the run's steps");
  WEFT_TRY(const RunComparison comparison, compare_run(plan, record, given));
  show_progress("");
  if (options.trace) {
    if (auto error = write_file(*options.trace, to_chrome_trace(comparison.timeline))) return *std::move(error);
  }
  if (options.json) {
    const RunSummary summary = summary_of(*options.run, plan, record, given, comparison);
    return json_output(to_json(summary, comparison));
  }
  return to_text(comparison);
}

}  // namespace weft
