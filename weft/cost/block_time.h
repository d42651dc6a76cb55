#pragma once

#include <map>

#include "weft/cost/block_memory.h"
#include "weft/cost/op_time.h"
#include "weft/cost/program_meanings.h"
#include "weft/spec/model.h"

namespace weft {

/// One rank's time in one pass through a block (or several), by what it is spent on. Communication counts as far as it
/// holds compute up.
struct PassTime {
  double compute_ms = 0;
  double tp_ms = 0;
  double cp_ms = 0;
  double ep_ms = 0;

  double total_ms() const { return compute_ms + tp_ms + cp_ms + ep_ms; }
  PassTime& operator+=(const PassTime& other) {
    compute_ms += other.compute_ms;
    tp_ms += other.tp_ms;
    cp_ms += other.cp_ms;
    ep_ms += other.ep_ms;
    return *this;
  }
  friend PassTime operator*(double factor, const PassTime& time) {
    return {factor * time.compute_ms, factor * time.tp_ms, factor * time.cp_ms, factor * time.ep_ms};
  }
};

/// A block's times for one microbatch.
struct BlockTime {
  PassTime forward;
  PassTime backward_input;
  PassTime backward_weight;
  /// The part of the forward that selective recomputation repeats: attention or, of an llm's exit, logits and their
  /// loss. Rows that become whole again for logits count with the weight's gradient, which takes the same.
  PassTime attention;
  // Tensor-parallel communication that is not in the passes because the other half of the same backward hides it.
  double hidden_input_tp_ms = 0;   ///< behind the weight gradient
  double hidden_weight_tp_ms = 0;  ///< behind the input gradient
};

/// The one interface behind which times come from formulas or from measurements.
class BlockTimes {
 public:
  virtual ~BlockTimes() = default;
  /// `segments` are the microbatch's before any division; none of them takes no time.
  virtual BlockTime time_of(const Module& module, const Block& block, const BlockSetting& setting,
                            const Segments& segments) const = 0;
  virtual BlockMemory memory_of(const Module& module, const Block& block, const BlockSetting& setting,
                                const Segments& segments) const {
    return weft::memory_of(module, block, setting, segments);
  }
};

/// What brings an encoder's rows to the llm's tokens, behind its exit.
BlockTime output_time(const Cluster& cluster, const Module& encoder, const BlockSetting& setting,
                      const Segments& segments);

/// What measured compute is to the formula's.
struct ComputeRatios {
  double forward = 1;
  double backward_input = 1;
  double backward_weight = 1;
  double attention = 1;
};

class OperatorTimes;

/// From the cluster's rates and efficiency alone, but for operators of programs that were measured.
class AnalyticTimes final : public BlockTimes {
 public:
  /// Both must outlive it.
  explicit AnalyticTimes(const Cluster& cluster, const OperatorTimes* measured = nullptr)
      : cluster_(&cluster), measured_(measured), meanings_(std::make_shared<ProgramMeanings>()) {}
  BlockTime time_of(const Module& module, const Block& block, const BlockSetting& setting,
                    const Segments& segments) const override;
  const Cluster& cluster() const { return *cluster_; }
  ProgramMeanings& meanings() const { return *meanings_; }

  /// Compute as it was measured on a device by itself, whose host does not get ahead while it communicates.
  BlockTime time_of(const Module& module, const Block& block, const BlockSetting& setting, const Segments& segments,
                    const ComputeRatios& ratios) const;

 private:
  const Cluster* cluster_;
  const OperatorTimes* measured_;
  std::shared_ptr<ProgramMeanings> meanings_;
};

}  // namespace weft
