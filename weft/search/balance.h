#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "weft/base/result.h"
#include "weft/search/balance_costs.h"

namespace weft {

/// What one stage got.
struct BalancedStage {
  std::vector<int32_t> blocks;      ///< of each kind of the chain
  std::vector<int32_t> recomputed;  ///< of these
  double forward_ms = 0;
  double backward_ms = 0;  ///< with recomputation; I and W together
};

/// Where the blocks of a chain go, and what that takes.
struct BalancedPipeline {
  double makespan_ms = 0;
  std::vector<BalancedStage> stages;
  std::vector<std::vector<int32_t>> stages_of_rank;
  std::vector<double> memory_gib;  ///< the peak of each rank
  double bubble_fraction = 0;
  bool is_optimal = false;  ///< to a billionth
  bool is_stopped = false;  ///< by the flag of the options
  double bound_ms = 0;      ///< no placement is faster than this; the makespan when it is optimal
  // How much work the answer took.
  int64_t num_simulated = 0;
  int64_t num_paths = 0;

  double gap() const { return makespan_ms > 0 ? (makespan_ms - bound_ms) / makespan_ms : 0; }
};

struct BalanceOptions {
  double time_limit_s = 10;
  const std::atomic<bool>* stop = nullptr;  ///< ends it with the best so far
};

/// The placement and recomputation with the smallest makespan that fits in memory. Where nothing fits, the error (of
/// the job, not of the input) says which memory limit or which pp would do. See docs/design/exact-balance.md.
Result<BalancedPipeline> balance(const BalanceCosts& costs, const BalanceOptions& options = {});

}  // namespace weft
