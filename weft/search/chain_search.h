#pragma once

#include <chrono>
#include <limits>
#include <vector>

#include "weft/search/deadline.h"
#include "weft/search/stage_options.h"

namespace weft {

/// A weighted sum over the stages of what their options cost: a path through the schedule, or the memory of a rank.
struct ChainRow {
  std::vector<StageFigures> stages;  ///< weights
  double constant = 0;
  /// Of a row that is a constraint the sum may not exceed this; the others are the objective, their maximum is to be
  /// small.
  double limit = std::numeric_limits<double>::infinity();

  bool is_constraint() const { return limit < std::numeric_limits<double>::infinity(); }
  double value(size_t stage, const StageOption& option) const {
    double sum = 0;
    for (size_t i = 0; i < kNumFigures; ++i) sum += stages[stage][i] * option.figures[i];
    return sum;
  }
};

/// One option (its index) for each stage.
using Chain = std::vector<size_t>;

/// Looks for chains of options whose rows all stay below a target. Rows are additive over stages, so for each the
/// least that the stages before and behind can add is known exactly; options that cannot be part of any chain are
/// removed for good. What remains is walked stage by stage with one label for each partial chain worth keeping: a
/// label is dropped when another at the same block is no larger in any row that can still reach its limit.
class ChainSearch {
 public:
  using Clock = std::chrono::steady_clock;

  explicit ChainSearch(const StageOptions& options);

  void add_row(ChainRow row);
  size_t num_rows() const { return rows_.size(); }

  /// Whether what is known of each row at each block has room in memory, with so many more rows. Nothing below may be
  /// asked without.
  bool has_room(size_t more_rows = 0) const;

  /// No chain has a larger row maximum below this: the largest of the rows' own minima over the options left; 0 where
  /// there was no time to find it.
  double bound(const Deadline& end = {});
  /// The best that find_below has met on its way, over all options; it costs nothing.
  double known_bound() const { return known_bound_; }

  struct Effort {
    size_t labels_a_block = std::numeric_limits<size_t>::max();  ///< more are dropped, the worst first
    size_t most_found = 8;
    Deadline deadline = {};
  };
  struct Outcome {
    std::vector<Chain> found;  ///< the best first
    bool is_complete = false;  ///< nothing was dropped: when nothing is found, there is nothing
  };
  /// Chains whose objective rows all stay below `target`. Removes options: later targets must not be larger.
  Outcome find_below(double target, const Effort& effort);

  /// The chain with the smallest sum of the row; empty when there is no chain.
  Chain least(const ChainRow& row) const;

  /// The chain whose largest option is smallest, measured by the sum of its times; empty when there is none.
  Chain least_bottleneck() const;

  /// A copy of the search state, so that a smaller target can be tried without consequences.
  std::vector<char> alive() const { return alive_; }
  void set_alive(std::vector<char> alive);

 private:
  struct Label {
    int32_t parent;  ///< in the layer before
    int32_t block;
    size_t option;  ///< that led here
  };
  struct Candidate {
    double bound;
    int32_t parent;
    size_t option;
  };

  size_t at(int32_t stage, int32_t block) const {
    return static_cast<size_t>(stage) * (static_cast<size_t>(options_.num_blocks()) + 1) + static_cast<size_t>(block);
  }
  double* ahead(int32_t stage, int32_t block) { return ahead_.data() + at(stage, block) * rows_.size(); }
  double* behind(int32_t stage, int32_t block) { return behind_.data() + at(stage, block) * rows_.size(); }
  void price(int32_t stage, const StageOption& option, double* values) const;
  /// Whether there was time for it.
  bool sum_behind(const Deadline& end);
  bool sum_ahead(const Deadline& end);
  size_t filter(double target, const Deadline& end);
  void find_most_behind();
  bool keep(const double* values, const double* needless, const std::vector<double>& kept) const;

  const StageOptions& options_;
  std::vector<ChainRow> rows_;
  std::vector<char> alive_;
  bool is_behind_current_ = false;
  double known_bound_ = 0;
  std::vector<double> limits_;    // of each row, for the target at hand
  std::vector<double> ahead_;     // per (stage, block) and row: the least that the stages before add
  std::vector<double> behind_;    // the least that this stage and those behind it add
  std::vector<double> needless_;  // below this, a row at (stage, block) can no longer reach its limit
  /// The weights of one figure on one stage, by row, for loops over rows.
  struct Column {
    size_t figure;
    std::vector<double> weights;
  };
  std::vector<std::vector<Column>> columns_;  // by stage; figures that no row weighs have none
};

}  // namespace weft
