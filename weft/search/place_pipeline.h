#pragma once

#include <vector>

#include "weft/search/chain_solver.h"
#include "weft/search/deadline.h"
#include "weft/search/plan_stages.h"
#include "weft/search/precision.h"

namespace weft {

/// What a placement is looked for with.
struct PlaceLimits {
  double below_ms = kInfinity;  ///< slower ones are of no interest
  double near_ms = 0;           ///< what the best one may come close to, if known: it is looked for there first
  Deadline deadline;
  bool is_careful = true;     ///< otherwise a good placement will do
  bool moves_chunks = false;  ///< with several stages a rank: begins with the rule, and moves blocks while that helps
  bool is_brief = false;      ///< a bound is all that is asked for, and need not be the best
};

/// What is known about a pipeline's placements below a makespan.
struct PlacedPipeline {
  std::vector<StageOption> stages;  ///< empty where nothing was found
  double makespan_ms = kInfinity;
  double bound_ms = 0;  ///< no placement is faster
  bool is_exhausted = false;

  /// No placement is faster than this, whether one was found or not.
  double proven_ms() const { return is_exhausted ? makespan_ms : bound_ms; }
};

/// The best placement of a pipeline's layers and recomputation: exact with one stage a rank, by the space's rule with
/// several (docs/design/plan-search.md).
PlacedPipeline place_pipeline(PlanStages& stages, SolverShape& shape, const PlaceLimits& limits);

}  // namespace weft
