#pragma once

#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "weft/cost/block_time.h"
#include "weft/cost/measured_shape.h"
#include "weft/cost/operator_times.h"
#include "weft/cost/scattered_table.h"
#include "weft/profile/profile.h"

namespace weft {

/// What reading a point from the others alone misses, of its time.
struct LeftOutError {
  double mean_percent = 0;
  double most_percent = 0;
};

/// Where the times of one block in one setting came from.
struct BlockSource {
  enum class Kind {
    kMeasured,      ///< only at shapes that were measured
    kInterpolated,  ///< between them
    kExtrapolated,  ///< beyond them, too
    kCarriedOver,   ///< the error of the formula in another setting
    kRelative,      ///< a layer with a strategy, by the formula's error of the layer without one
    kFormula,
  };

  Kind kind = Kind::kFormula;
  BlockShape asked;                   ///< the setting; tokens say nothing
  BlockShape taken_from;              ///< the setting that was measured, where it is another
  int64_t points = 0;                 ///< that were measured in that setting; operators of a program's block
  std::optional<LeftOutError> error;  ///< nothing where there are too few points
  double spread_percent = 0;          ///< the largest of the points'
  bool has_memory = false;            ///< bytes were measured, too
};

/// Measured times where a profile has them, formulas elsewhere. What was measured is kept as the formula's error, which
/// is interpolated in the logarithms of a rank's tokens and of their sequences' length: the time passes through what
/// was measured and bends as the formula does. A setting that was not measured has the error of the most similar one.
/// Bytes of blocks are treated alike.
///
/// A layer with a strategy is compared with the same layer without one, so both have numbers of one kind. Where the
/// profile measured both in this setting, each has its own measurement. Otherwise the strategy has the formula's error
/// of the layer without one: what the two are to each other by formulas, times what was measured. Without a measurement
/// of the usual layer both are formulas. Communication is the formula's, with the profile's links, in all cases.
class MeasuredTimes final : public BlockTimes {
 public:
  /// Cluster, model and profile must outlive it. Of measurements beside other busy ranks, those count with at most
  /// `busy_ranks`, and of these the most.
  MeasuredTimes(const Cluster& cluster, const Model& model, const Profile& profile, int64_t busy_ranks = 1);

  BlockTime time_of(const Module& module, const Block& block, const BlockSetting& setting,
                    const Segments& segments) const override;
  BlockMemory memory_of(const Module& module, const Block& block, const BlockSetting& setting,
                        const Segments& segments) const override;

  /// What is wrong with the profile, a sentence each.
  const std::vector<std::string>& warnings() const { return warnings_; }
  /// Of everything that was asked for, by module, block and setting.
  std::vector<BlockSource> sources() const;

 private:
  struct Table {
    BlockShape setting;
    ScatteredTable ratios;
    double least_tokens = 0, most_tokens = 0;  ///< logarithms, here and below
    double least_length = 0, most_length = 0;
    bool has_memory = false;
    std::optional<LeftOutError> error;
    double spread_percent = 0;
  };
  /// What is asked for, as it is compared: blocks by their place in the module.
  struct Key {
    ModuleKind module = ModuleKind::kLlm;
    size_t place = 0;
    int64_t tp = 1, cp = 1, cp_ulysses = 1, ep = 1;
    bool sequence_parallel = false, experts_over_tp = false;
    AttentionKernel attention = AttentionKernel::kFused;
    const BlockProgram* program = nullptr;

    bool operator==(const Key&) const = default;
    struct Hash {
      size_t operator()(const Key& key) const;
    };
  };
  /// The table that serves a key, and how it was used.
  struct Answer {
    const Table* table = nullptr;
    bool has_attention = false;
    bool was_between = false;
    bool was_outside = false;
    int64_t num_operators = 0;  ///< of a program's block, that were measured
    BlockShape asked;
  };

  Answer& answer_of(const Module& module, const Block& block, const BlockSetting& setting) const;
  /// Of tables that differ in the busy ranks alone, the one that is nearest to what is asked, from below.
  void keep_nearest(int64_t busy_ranks);
  const Table* nearest(const BlockShape& asked) const;
  /// Of the setting itself; null where it was not measured.
  const Table* same(const BlockShape& asked) const;
  const Table* table_for(const BlockShape& asked) const;
  ScatteredTable::Values ratios_at(Answer& answer, const BlockSetting& setting, const Load& load) const;

  std::unique_ptr<const OperatorTimes> operators_;
  AnalyticTimes analytic_;
  Precision precision_;
  std::vector<std::unique_ptr<Table>> tables_;
  std::vector<std::string> warnings_;
  mutable std::unordered_map<Key, Answer, Key::Hash> answers_;
};

/// "tp 2, cp 2, sequence parallel", what differs from a device by itself; "one device" where nothing does.
std::string setting_text(const BlockShape& shape);

}  // namespace weft
