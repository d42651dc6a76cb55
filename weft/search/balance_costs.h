#pragma once

#include <limits>
#include <string>
#include <vector>

#include "weft/base/document.h"
#include "weft/schedule/generators.h"

namespace weft {

/// Time of one forward and one backward. A backward that is not split has all of its time in `backward_input_ms`.
struct WorkTimes {
  double forward_ms = 0;
  double backward_input_ms = 0;
  double backward_weight_ms = 0;

  double total_ms() const { return forward_ms + backward_input_ms + backward_weight_ms; }
};

/// Equal blocks that follow each other in the chain.
struct BlockKind {
  std::string name;
  int32_t count = 0;
  WorkTimes times;
  double activation_gib = 0;       ///< what one microbatch in flight holds
  double recompute_saves_gib = 0;  ///< the part of it that a recomputed block does not hold
  double static_gib = 0;           ///< weights, gradients, optimizer states
};

/// What a stage has on top of its blocks.
struct StageExtra {
  WorkTimes times;
  double static_gib = 0;
};

/// A chain of blocks to be spread over the stages of a pipeline: what `weft balance` is given.
struct BalanceCosts {
  ScheduleName schedule = ScheduleName::k1f1b;
  PipelineShape shape;
  double p2p_ms = 0;
  double memory_gib = std::numeric_limits<double>::infinity();  ///< of one rank
  std::vector<BlockKind> chain;
  StageExtra first_stage;
  StageExtra last_stage;

  int32_t num_blocks() const;
  int32_t num_stages() const { return static_cast<int32_t>(shape.pp * shape.vpp); }
  bool has_memory_limit() const { return memory_gib < std::numeric_limits<double>::infinity(); }
};

/// Most blocks in a chain: the solver keeps a few numbers for every run of blocks on every stage.
inline constexpr int32_t kMostBalancedBlocks = 512;

/// Reads {"schedule", "pp", "vpp", "microbatches", "p2p_ms", "memory_gib", "chain": [{"name", "count", "forward_ms",
/// "backward_ms" or "backward_input_ms" and "backward_weight_ms", "activation_gib", "recompute_saves_gib",
/// "static_gib"}], "first_stage": {...}, "last_stage": {...}}. Schedules that split the backward need it split.
Result<BalanceCosts> read_balance_costs(const Document& document);

}  // namespace weft
