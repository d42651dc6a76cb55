#pragma once

#include <vector>

#include "weft/search/chain_solver.h"

namespace weft {

/// Places blocks where ranks hold several stages, quickly: the busiest rank as little busy as moves of single blocks
/// make it. Proves nothing. Recomputes on each rank what is cheapest until it fits.
class ChunkPlacer {
 public:
  /// What is handed in must outlive this. `memory_gib` is by rank.
  ChunkPlacer(StageSource& source, const SolverShape& shape, std::span<const double> memory_gib);

  /// The option of every stage, empty when none was found that fits.
  const std::vector<StageOption>& place();

 private:
  struct State {
    std::vector<int32_t> counts;       ///< blocks of each stage
    std::vector<StageOption> options;  ///< by stage
    double excess_gib = 0;             ///< over the ranks' limits
    double busiest_ms = 0;
    double unevenness = 0;  ///< the squares of the ranks' loads
    size_t busiest = 0;

    bool is_better_than(const State& other) const;
  };

  std::vector<int32_t> first_counts();
  void rate(State& state);
  double fit_rank(size_t rank, State& state);
  double excess_gib(size_t rank, const State& state) const;

  StageSource& source_;
  const SolverShape& shape_;
  std::span<const double> memory_gib_;
  std::vector<std::vector<int32_t>> stages_of_rank_;
  State best_;
  std::vector<StageOption> scratch_;
};

}  // namespace weft
