#pragma once

#include <set>
#include <string>
#include <vector>

#include "weft/cost/block_time.h"
#include "weft/profile/profile.h"

namespace weft {

/// Measured times where a profile has them, formulas elsewhere. Between two measurements the formula's error is
/// interpolated (in the logarithm of the tokens, then of their sequences' length), so that the time passes through what
/// was measured and bends as the formula does. Outside, the nearest measurement's error is taken on, and a warning
/// kept.
class MeasuredTimes final : public BlockTimes {
 public:
  /// Cluster, model and profile must outlive it.
  MeasuredTimes(const Cluster& cluster, const Model& model, const Profile& profile);

  BlockTime time_of(const Module& module, const Block& block, const BlockSetting& setting,
                    const Segments& segments) const override;

  /// One sentence for everything that was asked for and lies outside the table.
  std::vector<std::string> warnings() const { return {warnings_.begin(), warnings_.end()}; }

 private:
  /// What measured times are to the formula's.
  struct Ratios {
    double forward = 1;
    double backward_input = 1;
    double backward_weight = 1;
  };
  struct Point {
    double log_tokens = 0;
    Ratios ratios;
  };
  /// Measurements of one block in one setting with sequences of one length, by tokens.
  struct Row {
    double log_length = 0;
    std::vector<Point> points;
  };
  struct Table {
    ModuleKind module = ModuleKind::kLlm;
    std::string block;
    int64_t tp = 1;
    int64_t ep = 1;
    bool sequence_parallel = false;
    AttentionKernel attention = AttentionKernel::kFused;
    std::vector<Row> rows;  ///< by length
  };

  const Table* find(const Module& module, const Block& block, const BlockSetting& setting) const;
  static Ratios interpolate(const Row& row, double log_tokens);

  AnalyticTimes analytic_;
  Precision precision_;
  std::vector<Table> tables_;
  mutable std::set<std::string> warnings_;
};

/// Bandwidth efficiency and latency of the links that a profile measured, in place of the cluster's.
/// Returns what looks like a mistaken unit.
std::vector<std::string> apply_links(const Profile& profile, Cluster& cluster);

}  // namespace weft
