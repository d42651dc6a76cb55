#pragma once

#include <memory>

#include "weft/search/drawn_objective.h"
#include "weft/search/plan_search.h"
#include "weft/search/workbench.h"

namespace weft {

/// A plan on its way to better ones beyond the bench's space, each a neighbour of the one before (neighbours.h), placed
/// as the search places candidates but for several chunks a rank, between which blocks move. What was pinned stays as
/// it is; all settings are tried in the same order, so the answer is always the same unless the time ends it.
class PlanClimb {
 public:
  /// `drawn` compares plans where drawn batches decide. What is handed in must outlive it. `holds_encoders`: encoders
  /// stay where they are, and are run in the same form, until no other neighbour is better: plans of several kinds
  /// would else all become one soon.
  PlanClimb(Workbench& bench, const FoundPlan& start, DrawnObjective* drawn, bool holds_encoders = false);
  ~PlanClimb();
  PlanClimb(PlanClimb&&) noexcept;
  PlanClimb& operator=(PlanClimb&&) noexcept;

  /// Tries so many candidates more, until no neighbour is better or the time is over.
  void go_on(int64_t num_tries, const Deadline& deadline);
  /// No neighbour is better.
  bool has_ended() const;
  /// The start where nothing was better.
  FoundPlan best() const;
  double best_ms() const;

  /// Looks for better plans anywhere around the bench's space: all degrees and micro-batches with about the encoders of
  /// the plan (far_from), by their bounds, each placed with little care. Where batches are drawn the mean batch says
  /// little about plans, and the best may be far from what bounds lead to first. The best of each kind (pipeline ranks,
  /// and how encoders are run) that is not far behind the fastest, fastest first: improving one leads to what improving
  /// another does not. The climb itself is of no more use.
  std::vector<FoundPlan> look_far(const Deadline& deadline);

 private:
  class Improver;

  Workbench* bench_;
  std::unique_ptr<Improver> improver_;
};

}  // namespace weft
