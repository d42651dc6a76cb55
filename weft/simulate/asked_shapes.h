#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "weft/cost/block_time.h"
#include "weft/profile/profile.h"

namespace weft {

/// Which blocks were priced, at which shapes, and how much time they account for.
class AskedShapes {
 public:
  /// Shapes are those of ranks of which `busy_ranks` share a machine.
  AskedShapes(const Model& model, int64_t busy_ranks) : model_(model), busy_ranks_(busy_ranks) {}

  /// What is asked from now on counts by this factor.
  void weigh(double weight) { weight_ = weight; }
  void add(const Module& module, const Block& block, const BlockSetting& setting, const Segments& segments,
           const BlockTime& time);

  /// A few of them, between which a smooth error of a formula can be interpolated: tokens and lengths of sequences that
  /// lie within a factor of about 2 of one another around the middle, 4 at the ends. In the order of the time that they
  /// account for; at most `most`.
  std::vector<BlockShape> reduced(size_t most) const;

 private:
  struct Point {
    double log_tokens = 0;
    double log_length = 0;    ///< 0 where rows do not attend to one another
    double log_sequence = 0;  ///< the length, in any case
    double ms = 0;
  };
  /// All asked for of one block in one setting.
  struct Asked {
    const Module* module = nullptr;
    const Block* block = nullptr;
    BlockShape setting;
    std::map<std::pair<int64_t, int64_t>, Point> points;  ///< by place in a fine grid
  };
  struct Wanted {
    BlockShape shape;
    double ms = 0;
  };

  /// As a measurement can have it: whole sequences, of a length that there can be.
  BlockShape measurable(const Asked& asked, const Point& point) const;
  void add_wanted(const Asked& asked, std::vector<Wanted>& wanted) const;

  const Model& model_;
  int64_t busy_ranks_;
  double weight_ = 1;
  using Key = std::tuple<const Block*, int64_t, int64_t, int64_t, int64_t, bool, bool, AttentionKernel>;
  std::map<Key, Asked> asked_;
};

/// The formula's times, and a record of what was asked for.
class RecordingTimes final : public BlockTimes {
 public:
  /// Both must outlive it.
  RecordingTimes(const Cluster& cluster, AskedShapes& asked) : formula_(cluster), asked_(asked) {}

  BlockTime time_of(const Module& module, const Block& block, const BlockSetting& setting,
                    const Segments& segments) const override {
    const BlockTime time = formula_.time_of(module, block, setting, segments);
    asked_.add(module, block, setting, segments, time);
    return time;
  }

 private:
  AnalyticTimes formula_;
  AskedShapes& asked_;
};

}  // namespace weft
