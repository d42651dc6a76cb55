#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "weft/base/document.h"

namespace weft {

/// A time for every (stage, microbatch): one number, one per stage, or a full matrix.
class CostTable {
 public:
  CostTable() = default;
  explicit CostTable(double value) : values_{value} {}
  /// One row a stage; rows of one entry hold for all microbatches.
  CostTable(int32_t num_stages, int32_t num_microbatches, std::vector<double> values)
      : values_(std::move(values)),
        stage_stride_(values_.size() == 1 ? 0 : static_cast<int64_t>(values_.size()) / num_stages),
        microbatch_stride_(stage_stride_ == num_microbatches && num_microbatches > 1 ? 1 : 0) {}

  double at(int32_t stage, int32_t microbatch) const {
    return values_[static_cast<size_t>(stage * stage_stride_ + microbatch * microbatch_stride_)];
  }

 private:
  std::vector<double> values_ = {0.0};
  int64_t stage_stride_ = 0;
  int64_t microbatch_stride_ = 0;
};

/// The same of one encoder. Tables are indexed by (group, macro batch).
struct EncoderCosts {
  CostTable forward_ms{1.0};
  CostTable backward_ms{1.0};  ///< without the forward that recompute_from_inputs adds
  CostTable reduce_ms{0.0};    ///< ER, by group; beside compute, like those of stages
  CostTable update_ms{0.0};    ///< EU, by group
  double bridge_ms = 0;        ///< between the encoder and the entry stage, each way; keeps nobody busy
  /// Between two stages of the encoder's own pipeline, from the group that is indexed to the next and, with gradients,
  /// back to it: as long as it keeps the sender's channel, and what passes after that.
  CostTable p2p_busy_ms{0.0};
  CostTable p2p_ms{0.0};
};

/// What the simulator needs to know of a pipeline: plain times in milliseconds. B takes I and W together.
struct PipelineCosts {
  CostTable forward_ms{1.0};
  CostTable backward_input_ms{1.0};
  CostTable backward_weight_ms{1.0};
  /// From the indexed (stage, microbatch) to the next stage; delays the receiver, keeps nobody busy.
  CostTable p2p_ms{0.0};
  /// Bytes over bandwidth: how long the transfer keeps its sender's channel, before p2p_ms.
  CostTable p2p_busy_ms{0.0};
  /// The same for gradients, from the indexed stage to the one before it; where they are not given, as the values.
  std::optional<CostTable> gradient_p2p_ms = std::nullopt;
  std::optional<CostTable> gradient_p2p_busy_ms = std::nullopt;
  CostTable reduce_grad_ms{0.0};  ///< per stage
  CostTable update_ms{0.0};       ///< per stage; waits for the stage's reduction
  bool overlaps_reduce = true;    ///< reductions run beside compute, one after the other; else they hold it up
  std::vector<EncoderCosts> encoders = {};  ///< one for each encoder of the schedule
};

/// Reads {"forward_ms": x, "backward_input_ms": y, "backward_weight_ms": z, "p2p_ms": t, "p2p_busy_ms": u}; each is a
/// number, an array per stage, or a matrix [stage][microbatch]; also "reduce_grad_ms" and "update_ms", a number or an
/// array per stage, and "overlaps_reduce". The first three must be given. Unknown keys are rejected.
Result<PipelineCosts> read_pipeline_costs(const Document& document, int32_t num_stages, int32_t num_microbatches);

}  // namespace weft
