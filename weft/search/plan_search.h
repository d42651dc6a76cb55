#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "weft/profile/profile.h"
#include "weft/search/candidate.h"
#include "weft/search/plan_space.h"
#include "weft/search/simplicity.h"

namespace weft {

/// A candidate with its best known placement.
struct FoundPlan {
  Candidate candidate;
  Plan plan;
  double step_time_ms = 0;
  double bound_ms = 0;                ///< no placement of this candidate is faster, for the mean batch
  std::vector<double> steps_ms = {};  ///< of drawn batches, where these decide
  Simplicity simplicity = {};
  std::vector<Candidate> ties = {};  ///< others that were found to be as fast, and no simpler
};

/// What became of the candidates of a space. The parts add up to `considered`.
struct SearchCounts {
  int64_t considered = 0;
  int64_t slower_by_work = 0;       ///< their work alone, spread evenly, takes longer than the best plan
  int64_t slower_by_schedule = 0;   ///< no placement of their layers is faster, even without a memory limit
  int64_t slower_by_placement = 0;  ///< no placement that fits is faster than the best plan
  int64_t over_memory = 0;          ///< no placement fits
  int64_t not_expressed = 0;        ///< the space's target has no settings for them
  int64_t evaluated = 0;            ///< simulated
  int64_t left = 0;                 ///< the time was too short for these
};

struct PlanSearchResult {
  std::vector<FoundPlan> best;           ///< fastest first, at most as many as were asked for
  std::optional<FoundPlan> chosen = {};  ///< the simplest that is within the margin of the fastest
  SearchCounts counts;
  /// Nothing in the space is faster. Where drawn batches decide: all plans that are faster than the best even for the
  /// mean batch were drawn.
  bool is_optimal = false;
  double bound_ms = 0;  ///< no plan of the space is faster, for the mean batch
  /// Drawn batches that the best were priced on, and how many plans were; 0 where the mean batch decided.
  int64_t batches = 0;
  int64_t num_drawn = 0;
  /// The fastest has settings that the space does not, and by what share it became faster after the search.
  bool is_beyond_space = false;
  double improved_by = 0;

  double gap() const { return best.empty() ? 0 : std::max(0.0, 1 - bound_ms / best.front().step_time_ms); }
};

/// The bounds that drop candidates. Without any of them the answer is the same, and takes longer.
struct SearchBounds {
  bool work = true;
  bool schedule = true;
  bool placement = true;
};

/// As many batches as are needed to be sure which plan is fastest.
inline constexpr int64_t kEnoughBatches = -1;

/// Steps of more samples are compared for the mean batch, which they are near to; drawing them takes gigabytes.
inline constexpr int64_t kMostDrawnSamples = 1 << 14;

struct PlanSearchOptions {
  double time_limit_s = 60;
  size_t top = 1;            ///< how many of the fastest plans, of different times
  double within = 0;         ///< a plan may be slower than the fastest by this share if it is simpler
  double memory_margin = 0;  ///< the share of a device's memory that plans leave free
  /// Compare plans on so many batches drawn from the workload's distributions; 0: on the mean batch.
  int64_t batches = 0;
  bool first_only = false;     ///< any plan that fits will do
  double limit_ms = INFINITY;  ///< only faster plans are looked for
  bool improves = false;       ///< the fastest is improved beyond the space, where nothing was pinned
  const Profile* profile = nullptr;
  std::function<void(const std::string&)> progress = {};
  const std::atomic<bool>* stop = nullptr;
  SearchBounds bounds = {};
};

/// The fastest plan of a space that fits: best first by lower bounds, each candidate's layers and recomputation placed
/// by an exact solver, every survivor priced by the plan simulator. Deterministic unless the time limit cuts it short.
/// See docs/design/plan-search.md.
Result<PlanSearchResult> search_plans(const Model& model, const Cluster& cluster, const Workload& workload,
                                      const PlanSpace& space, const PlanSearchOptions& options = {});

}  // namespace weft
