#pragma once

#include <vector>

#include "weft/search/drawn_objective.h"
#include "weft/search/open_frame.h"
#include "weft/search/plan_search.h"

namespace weft {

/// What became of a candidate that was looked at by itself.
enum class Fate {
  kSlowerBySchedule,
  kSlowerByPlacement,
  kOverMemory,
  kOpen,  ///< neither placed nor excluded
  kSimulated,
};

struct Evaluation {
  Fate fate = Fate::kOpen;
  std::vector<FoundPlan> found = {};  ///< plans that fit and are faster than the limit, in the order of their making
  double open_bound_ms = kInfinity;   ///< of what was neither placed for certain nor excluded
};

struct EvaluateOptions {
  double bound_ms = 0;  ///< what is known of the candidate: it is no faster
  double limit_ms = kInfinity;
  double reassigned_limit_ms = kInfinity;  ///< of plans that reassign samples, which are less simple
  SearchBounds bounds;
  Deadline deadline;
  bool is_probe = false;            ///< with little care: the candidate is met again
  bool moves_chunks = false;        ///< beyond the space's rule for several chunks a rank
  bool recomputes_all = false;      ///< every layer, where the space allows: what fits at all may fit so
  bool looks_near = false;          ///< limits are far above what plans take: placements are sought near their bound
  bool has_plan = false;            ///< one is known already: no batch is priced behind the deadline
  DrawnObjective* drawn = nullptr;  ///< compares plans that are faster than the limit for the mean batch
};

/// Places a candidate of an open frame and simulates it, as far as it may be below the limit.
Evaluation evaluate_candidate(Workbench& bench, OpenFrame& frame, const Candidate& c, const EvaluateOptions& options);

}  // namespace weft
