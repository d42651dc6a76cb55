#pragma once

#include "weft/search/drawn_objective.h"
#include "weft/search/plan_search.h"
#include "weft/search/workbench.h"

namespace weft {

struct ImproveOptions {
  DrawnObjective* drawn = nullptr;  ///< compares plans where drawn batches decide
  Deadline deadline;
  int64_t most_tried = 2000;  ///< candidates
};

/// Looks for better plans anywhere around the bench's space: all degrees and micro-batches with about the encoders of
/// the plan (far_from), by their bounds, each placed with little care. Where batches are drawn the mean batch says
/// little about plans, and the best may be far from what bounds lead to first. The best of each kind (pipeline ranks,
/// and how encoders are run) that is not far behind the fastest, fastest first: improving one leads to what improving
/// another does not.
std::vector<FoundPlan> look_far(Workbench& bench, const FoundPlan& found, const ImproveOptions& options);

/// Goes from a plan to better ones beyond the bench's space, each a neighbour of the one before (neighbours.h), placed
/// as the search places candidates but for several chunks a rank, between which blocks move. Ends where no neighbour is
/// better. What was pinned stays as it is; all settings are tried in the same order, so the answer is always the same
/// unless the time ends it. The plan as it was where nothing is better.
FoundPlan improve_plan(Workbench& bench, const FoundPlan& found, const ImproveOptions& options);

}  // namespace weft
