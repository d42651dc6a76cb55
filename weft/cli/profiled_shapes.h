#pragma once

#include <optional>
#include <string>
#include <vector>

#include "weft/plan/plan.h"
#include "weft/profile/profile.h"
#include "weft/search/plan_space.h"

namespace weft {

/// What a profile is made for.
struct ProfiledProblem {
  Model model;
  std::optional<Cluster> cluster;  ///< nothing: this machine
  const Plan* plan = nullptr;      ///< that it is made for; null: for a search
  Workload workload;
  PlanSpace space;
};

/// The options that name it, as they were given.
struct ProfiledOptions {
  const std::optional<std::string>&model, &workload, &cluster, &space;
  const Plan* plan = nullptr;
};
Result<ProfiledProblem> read_profiled_problem(const ProfiledOptions& options);

/// The shapes that pricing the plan, or plans of the search, asks for, the most important first, with at most so many
/// ranks busy at once. The cluster must be there.
Result<std::vector<BlockShape>> shapes_to_profile(const ProfiledProblem& problem, Precision precision,
                                                  int64_t most_ranks);

}  // namespace weft
