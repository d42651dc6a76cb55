#pragma once

#include <limits>
#include <vector>

#include "weft/search/balance_memory.h"
#include "weft/search/chain_search.h"
#include "weft/search/path_mix.h"
#include "weft/search/schedule_graph.h"

namespace weft {

/// A schedule as the solver needs it. Placements of many chains share it, and the paths that were found to matter: a
/// path bounds every placement of every chain.
struct SolverShape {
  explicit SolverShape(Schedule of);

  Schedule schedule;
  ScheduleGraph graph;
  MomentsOfRanks moments;
  std::vector<int32_t> in_flight;  ///< by stage, at most
  /// By rank: microbatches of a layer that are held at once whichever of the rank's chunks it lies in, at least, as a
  /// mix of moments shows.
  std::vector<double> held_anyway;
  std::vector<CriticalPath> paths;  ///< the plain ones first, then the last that were found
  PathMix mix;                      ///< of the plain ones
};

/// How long to look.
struct SolverEffort {
  ChainSearch::Clock::time_point start = ChainSearch::Clock::now();
  ChainSearch::Clock::duration time_limit = std::chrono::hours(1);
  const std::atomic<bool>* stop = nullptr;                       ///< ends it early
  size_t most_labels = std::numeric_limits<size_t>::max();       ///< a block, in one walk
  int64_t most_local = std::numeric_limits<int64_t>::max() / 2;  ///< simulations of the local search, each time
  int most_walks = std::numeric_limits<int>::max();              ///< behind so many, the bound is what they have shown
};

/// What became of it.
struct SolvedChain {
  Chain best;  ///< empty where nothing below the limit was found
  double best_ms = std::numeric_limits<double>::infinity();
  /// No chain that fits is faster: the best, or the limit where there is none, once all were excluded.
  double bound_ms = 0;
  bool is_exhausted = false;  ///< nothing that fits is better; where there is no best, nothing fits below the limit
  int64_t num_simulated = 0;
  bool is_too_large = false;  ///< too many stages and blocks for the search's tables: nothing was looked at
};

/// The chain of options with the smallest makespan below `below_ms`. Ranks that hold several stages share
/// their memory, `memory_gib` by rank where it is limited; a rank with one stage was judged when its options were made.
SolvedChain solve_chain(SolverShape& shape, const StageOptions& options, std::span<const double> memory_gib,
                        double below_ms, const SolverEffort& effort);

}  // namespace weft
