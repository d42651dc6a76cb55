#pragma once

#include "weft/search/plan_search.h"

namespace weft {

/// What a search looks for plans of.
struct PlanProblem {
  Model model;
  Cluster cluster;
  Workload workload;
  PlanSpace space;
  bool has_own_batch = false;  ///< an option gave the batch, not the workload's file
};

/// The least memory a device must have for some plan of the space to fit, to a hundredth; nothing when none does up to
/// 1,024 times what it has, or the time was too short.
struct LeastMemory {
  double gib = 0;
  FoundPlan plan;  ///< that fits then
};
std::optional<LeastMemory> least_memory(const PlanProblem& problem, const PlanSearchOptions& options);

/// The next number of nodes, doubling, with which something fits.
std::optional<int64_t> enough_nodes(const PlanProblem& problem, const PlanSearchOptions& options);

/// Why there is no plan, as the job's error: which pins contradict each other, which batches could be divided, or how
/// much memory is missing and what would do. Takes no longer than the options' time limit but for a search that is
/// under way when it ends.
Error explain_no_plan(const PlanProblem& problem, const PlanSearchResult& result, const PlanSearchOptions& options);

}  // namespace weft
