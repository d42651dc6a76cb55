#pragma once

#include <vector>

#include "weft/search/chain_solver.h"

namespace weft {

/// Places blocks where ranks hold several stages, by a rule: all stages get the same number, and what does not divide
/// goes to ranks in turn, from the first on, each time into their last chunk that has none of it yet. Where the last
/// stage is to have `fewer`, the rest is spread as if it had them. Each rank recomputes where that saves the most for
/// its time, until it fits.
class ChunkPlacer {
 public:
  /// What is handed in must outlive this. `memory_gib` is by rank, empty without a limit.
  ChunkPlacer(StageSource& source, const SolverShape& shape, std::span<const double> memory_gib);

  /// How many fewer blocks the last stage can have.
  static constexpr int32_t kMostFewer = 2;

  /// The blocks of every stage; empty where there are too few of them.
  std::vector<int32_t> counts(int32_t fewer) const;
  /// The option of every stage with so many blocks; empty where it does not fit.
  std::vector<StageOption> place(const std::vector<int32_t>& counts);

 private:
  double excess_gib(size_t rank, const std::vector<StageOption>& options) const;
  bool fit_rank(size_t rank, std::vector<StageOption>& options);

  StageSource& source_;
  const SolverShape& shape_;
  std::span<const double> memory_gib_;
  std::vector<std::vector<int32_t>> stages_of_rank_;
  std::vector<StageOption> scratch_;
};

}  // namespace weft
