#pragma once

#include <random>
#include <vector>

#include "weft/search/chain_search.h"
#include "weft/search/schedule_graph.h"

namespace weft {

/// Improves a placement by moving blocks between stages, for schedules whose ranks share memory between chunks, where
/// the exact search may be long: it proves nothing, but a good placement early lets the search drop more.
class LocalSearch {
 public:
  using Clock = ChainSearch::Clock;

  /// `memory_rows` have limits. What is handed in must outlive this.
  LocalSearch(const Schedule& schedule, const StageOptions& options, const std::vector<ChainRow>& memory_rows,
              ScheduleGraph& graph);

  struct Effort {
    int num_kicks = 0;
    int64_t most_simulated = std::numeric_limits<int64_t>::max() / 2;
    Deadline deadline = {};
  };
  /// The best chain met from `start` on by moves of a block and by random displacements of the best, the same on every
  /// run. Empty when none met fits.
  Chain improve(const Chain& start, const Effort& effort);
  int64_t num_simulated() const { return num_simulated_; }

 private:
  struct State {
    std::vector<int32_t> counts;  ///< blocks of each stage
    Chain chain;
    double excess_gib = 0;  ///< over the memory limit
    double makespan_ms = 0;
    double unevenness = 0;  ///< the squares of the ranks' loads: of equally long placements the more even is the better

    bool is_better_than(const State& other) const;
  };

  bool rate(State& state);
  void descend(State& state);
  bool is_over() const { return num_simulated_ >= end_simulated_ || effort_.deadline.is_over(); }
  double fit_rank(size_t rank, Chain& chain) const;

  const StageOptions& options_;
  ScheduleGraph& graph_;
  Effort effort_;
  int64_t end_simulated_ = 0;
  std::vector<std::vector<int32_t>> stages_of_rank_;
  std::vector<std::vector<const ChainRow*>> rows_of_rank_;
  std::vector<double> prices_;  // of a millisecond of recomputation on each stage
  int64_t num_simulated_ = 0;
  std::mt19937_64 random_{1};
};

}  // namespace weft
