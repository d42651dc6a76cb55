#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "weft/validate/run_comparison.h"

namespace weft {

/// How far a run's prediction was off.
struct RunSummary {
  std::string run;  ///< its folder
  std::string model;
  std::string device;   ///< of the plan's cluster, with what the run computed on
  std::string profile;  ///< that the prediction was made with; empty: none
  double step_time_error_percent = 0;
  double noise_percent = 0;
  std::optional<double> memory_error_percent;
};

RunSummary summary_of(const std::string& run, const Plan& plan, const RunRecord& record, const Profile* profile,
                      const RunComparison& comparison);

inline constexpr const char* kPredictionName = "prediction.json";

/// The prediction.json of a run folder: a summary, and the comparison that it is of.
Json to_json(const RunSummary& summary, const RunComparison& comparison);
/// Only the summary, of the folder's own file; nothing where there is none.
Result<std::optional<RunSummary>> read_prediction(const std::filesystem::path& run_folder);

/// Errors of several runs, by their sizes.
struct RunErrors {
  int64_t runs = 0;
  double mean_percent = 0;
  double worst_percent = 0;  ///< with its sign
  std::string worst_run;
  double mean_noise_percent = 0;
};
RunErrors step_errors(const std::vector<RunSummary>& runs);
/// Of those whose memory was compared.
RunErrors memory_errors(const std::vector<RunSummary>& runs);

/// Runs that have the same model, or the same device.
std::map<std::string, std::vector<RunSummary>> grouped_by(const std::vector<RunSummary>& runs,
                                                          std::string RunSummary::*field);

}  // namespace weft
