#pragma once

#include <algorithm>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "weft/base/result.h"
#include "weft/search/deadline.h"
#include "weft/search/schedule_graph.h"

namespace weft {

/// What an option costs: the works of the schedule's graph in milliseconds, then memory in GiB.
enum Figure : size_t {
  kActivationGib = kNumWorks,  ///< what one microbatch in flight holds
  kDeferredGib,                ///< more of it between I and W
  kStaticGib,                  ///< all the time
  kWorkspaceGib,               ///< while an action of the stage runs
};
inline constexpr size_t kNumFigures = kNumWorks + 4;
using StageFigures = std::array<double, kNumFigures>;

/// One way to fill a stage: a run of blocks, some of them recomputed.
struct StageOption {
  int32_t first = 0;  ///< the run's first block
  int32_t count = 0;
  int32_t choice = 0;      ///< which of the run's recomputations, where there are several
  StageFigures figures{};  ///< recomputation is in the backward, or in I where it is split

  int32_t end() const { return first + count; }
  StageTimes times() const {
    StageTimes times;
    std::copy_n(figures.begin(), kNumWorks, times.begin());
    return times;
  }
  /// One microbatch.
  double total_ms() const { return figures[kForwardWork] + figures[kInputWork] + figures[kWeightWork]; }
};

/// Where the options of stages come from.
class StageSource {
 public:
  virtual ~StageSource() = default;
  virtual int32_t num_stages() const = 0;
  virtual int32_t num_blocks() const = 0;
  /// What passes before a stage that starts at a block can do anything, and after it, at least.
  virtual double lead_ms(int32_t /*stage*/, int32_t /*first*/) const { return 0; }
  /// Appends the ways to fill a stage with a run of blocks that fit in memory, the quickest first. Where there is none,
  /// a longer run has none either. Fails, as the input is too large, when there are too many.
  virtual std::optional<Error> list(int32_t stage, int32_t first, int32_t count, std::vector<StageOption>& options) = 0;
};

/// The options of all stages, sorted by stage, first block and count. Stage s starts at block s at the earliest and
/// leaves a block for each stage behind it.
class StageOptions {
 public:
  /// Options that no chain with a makespan below the limit has are left out, as far as their rank's own work and that
  /// of one microbatch before it can tell; and those that no chain of the others reaches.
  struct Limit {
    double below_ms = std::numeric_limits<double>::infinity();
    int64_t microbatches = 1;
    /// Where stages start in a placement; others are listed only where no stage starts further than `reach` from there.
    std::vector<int32_t> around = {};
    int32_t reach = 0;
    Deadline deadline = {};
    /// So many runs of blocks are looked at even behind the deadline.
    int64_t sure_runs = 0;
  };
  /// Fails where there are too many, or the time is over.
  static Result<StageOptions> make(StageSource& source, const Limit& limit);

  int32_t num_stages() const { return num_stages_; }
  int32_t num_blocks() const { return num_blocks_; }
  size_t size() const { return options_.size(); }
  const StageOption& operator[](size_t index) const { return options_[index]; }
  /// Indices of the options of a stage that start at a block: begin(s, first) ≤ i < begin(s, first + 1).
  size_t begin(int32_t stage, int32_t first) const {
    return begins_[static_cast<size_t>(stage) * (static_cast<size_t>(num_blocks_) + 1) + static_cast<size_t>(first)];
  }
  /// The blocks at which a stage can start: low ≤ first ≤ high. The stage behind the last starts at the end.
  int32_t low(int32_t stage) const { return low_[static_cast<size_t>(stage)]; }
  int32_t high(int32_t stage) const { return high_[static_cast<size_t>(stage)]; }

 private:
  int32_t num_stages_ = 0;
  int32_t num_blocks_ = 0;
  std::vector<StageOption> options_;
  std::vector<size_t> begins_;
  std::vector<int32_t> low_, high_;
};

/// Memory that a limit allows: a sum of decimal fractions may exceed it by rounding.
inline double with_rounding(double limit_gib) {
  return limit_gib + 1e-9 * (1 + limit_gib);
}

}  // namespace weft
