#pragma once

#include <functional>
#include <vector>

#include "weft/search/chain_search.h"

namespace weft {

/// Finds weights for rows whose mix bounds every chain well. Each chain that beats the target is below it in every
/// objective row and within every constraint, so also in any mix: shares of objective rows that add up to one, plus
/// constraints' excess at any price. One row alone is cheap to satisfy at the others' expense; the best mix sees the
/// trade. Found by ascending along subgradients, warm from call to call.
class PriceMix {
 public:
  /// Constraints have limits, objectives none.
  explicit PriceMix(std::vector<ChainRow> constraints);

  void add_objective(ChainRow row);

  struct Effort {
    int iterations = 100;
    double target = 0;  ///< the value to reach
    Deadline deadline = {};
  };
  /// Ascends; every chain that it meets is shown to `meet`, which may add objectives. Returns the best mix met, a row
  /// for ChainSearch: below the target for every chain that beats it.
  ChainRow improve(const ChainSearch& search, const StageOptions& options, const Effort& effort,
                   const std::function<void(const Chain&)>& meet);
  double best_bound() const { return best_bound_; }

 private:
  ChainRow mix() const;

  std::vector<ChainRow> objectives_, constraints_;
  std::vector<double> shares_, prices_;
  double best_bound_ = 0;
};

}  // namespace weft
