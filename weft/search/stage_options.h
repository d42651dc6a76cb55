#pragma once

#include <limits>
#include <span>
#include <vector>

#include "weft/base/result.h"
#include "weft/search/balance_costs.h"
#include "weft/search/schedule_graph.h"

namespace weft {

/// One way to fill a stage: a run of blocks, some of them recomputed.
struct StageOption {
  int32_t first = 0;  ///< the run's first block
  int32_t count = 0;
  StageTimes times{};         ///< recomputation is in the backward, or in I where it is split
  double activation_gib = 0;  ///< one microbatch in flight holds this
  double static_gib = 0;
  int32_t choice = 0;  ///< which of the run's recomputations, where there are several

  int32_t end() const { return first + count; }
  double total_ms() const { return times[0] + times[1] + times[2]; }
};

/// Which recomputations are worth an option of their own.
enum class RecomputeOptions {
  kLeast,   ///< the one that adds the least time and fits: enough where a rank holds one stage
  kPareto,  ///< each that no other beats in both time and memory: where stages share a rank's memory
  kAll,     ///< every block recomputed: the least memory
};

/// The options of all stages, sorted by stage, first block and count. Stage s starts at block s at the earliest and
/// leaves a block for each stage behind it.
class StageOptions {
 public:
  /// `in_flight` is, per stage, the most microbatches that it holds at once. Options that do not fit into the memory
  /// limit even alone on their rank, or whose work for one microbatch takes longer than `most_ms`, are left out. Fails,
  /// as the input is too large, when there are too many.
  static Result<StageOptions> make(const BalanceCosts& costs, std::span<const int32_t> in_flight,
                                   RecomputeOptions which, double most_ms = std::numeric_limits<double>::infinity());

  int32_t num_stages() const { return num_stages_; }
  int32_t num_blocks() const { return num_blocks_; }
  size_t size() const { return options_.size(); }
  const StageOption& operator[](size_t index) const { return options_[index]; }
  /// Indices of the options of a stage that start at a block: begin(s, first) ≤ i < begin(s, first + 1).
  size_t begin(int32_t stage, int32_t first) const {
    return begins_[static_cast<size_t>(stage) * (static_cast<size_t>(num_blocks_) + 1) + static_cast<size_t>(first)];
  }
  /// Recomputed blocks of each kind. Found anew: chains of many kinds would need too much memory to keep them all.
  std::vector<int32_t> recomputed_blocks(const BalanceCosts& costs, int32_t stage, const StageOption& option) const;

 private:
  int32_t num_stages_ = 0;
  int32_t num_blocks_ = 0;
  RecomputeOptions which_ = RecomputeOptions::kLeast;
  std::vector<int32_t> in_flight_;
  std::vector<StageOption> options_;
  std::vector<size_t> begins_;
};

/// How many blocks of each kind are among `count` blocks from `first` on.
std::vector<int32_t> blocks_of_kinds(const BalanceCosts& costs, int32_t first, int32_t count);

/// Memory that a limit allows: a sum of decimal fractions may exceed it by rounding.
inline double with_rounding(double limit_gib) {
  return limit_gib + 1e-9 * (1 + limit_gib);
}

}  // namespace weft
