#pragma once

#include <optional>
#include <string>

#include "weft/shard/shard_solver.h"

namespace weft {

struct ShardSearchOptions {
  ShardSearch search = ShardSearch::kExact;
  std::optional<double> memory_bytes;  ///< of a rank; no limit without
  int64_t most_nodes = 4000;           ///< of the search under a memory limit
};

/// A strategy, and how far it is from the best.
struct ShardSolution {
  ShardAssignment assignment;
  ShardTotals totals;
  bool is_optimal = false;
  double bound_ms = 0;  ///< no strategy is faster
  int64_t num_solved = 0;

  /// 0 where it is optimal: by how much, as a share of the bound, others could be faster.
  double gap() const { return is_optimal || bound_ms <= 0 ? 0 : totals.ms() / bound_ms - 1; }
};

/// Fails where nothing fits into the memory, with the least that would do, or where the program is too large for an
/// exact search.
Result<ShardSolution> search_strategy(const ShardProblem& problem, const ShardSearchOptions& options);

}  // namespace weft
