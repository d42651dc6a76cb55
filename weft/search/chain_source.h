#pragma once

#include <vector>

#include "weft/search/balance_costs.h"
#include "weft/search/stage_options.h"

namespace weft {

/// Which recomputations are worth an option of their own.
enum class RecomputeOptions {
  kLeast,   ///< the one that adds the least time and fits: enough where a rank holds one stage
  kPareto,  ///< each that no other beats in both time and memory: where stages share a rank's memory
  kAll,     ///< every block recomputed: the least memory
};

/// Options from a chain of blocks whose costs add up.
class ChainSource : public StageSource {
 public:
  /// `in_flight` is, per stage, the most microbatches that it holds at once. Runs that do not fit into the memory limit
  /// even alone on their rank have no options. `costs` must outlive this.
  ChainSource(const BalanceCosts& costs, std::vector<int32_t> in_flight, RecomputeOptions which)
      : costs_(costs), in_flight_(std::move(in_flight)), which_(which) {}

  int32_t num_stages() const override { return static_cast<int32_t>(in_flight_.size()); }
  int32_t num_blocks() const override { return costs_.num_blocks(); }
  std::optional<Error> list(int32_t stage, int32_t first, int32_t count, std::vector<StageOption>& options) override;

  /// Recomputed blocks of each kind. Found anew: chains of many kinds would need too much memory to keep them all.
  std::vector<int32_t> recomputed_blocks(int32_t stage, const StageOption& option) const;

 private:
  const BalanceCosts& costs_;
  std::vector<int32_t> in_flight_;
  RecomputeOptions which_;
};

/// How many blocks of each kind are among `count` blocks from `first` on.
std::vector<int32_t> blocks_of_kinds(const BalanceCosts& costs, int32_t first, int32_t count);

}  // namespace weft
