#pragma once

#include <optional>
#include <string>
#include <vector>

#include "weft/base/result.h"
#include "weft/validate/run_summary.h"

namespace weft {

/// What `weft validate` is asked of runs of `weft train`.
struct ValidateRunOptions {
  std::optional<std::string> plan, run, profile, trace;
  std::vector<std::string> runs;
  bool json = false;

  bool is_asked() const { return plan || run || !runs.empty(); }
};

/// Text or JSON, for standard output.
Result<std::string> validate_runs(const ValidateRunOptions& options);

/// The same for who has just trained: writes prediction.json into the run folder. `profile` may be null.
Result<RunComparison> keep_comparison(const Plan& plan, const std::string& run_folder, const Profile* profile);

}  // namespace weft
