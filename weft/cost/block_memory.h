#pragma once

#include "weft/cost/block_setting.h"
#include "weft/cost/local_shape.h"
#include "weft/spec/model.h"
#include "weft/spec/segments.h"

namespace weft {

/// What one rank keeps of one microbatch's pass through a block, in bytes, and what it needs for a while on top.
struct BlockMemory {
  double saved = 0;            ///< from forward to backward
  double saved_selective = 0;  ///< the same when attention is recomputed, or an exit's logits
  double saved_full = 0;       ///< the same when the whole block is: its input
  double statistics = 0;       ///< of `saved`: norms' and fused attention's numbers in fp32
  double deferred = 0;         ///< inputs and output gradients of products, for weight gradients that come later
  double workspace = 0;        ///< while the block runs, forwards or backwards
  double some_logits = 0;      ///< those that are there at a time where not all are kept
};

BlockMemory memory_of(const Module& module, const Block& block, const BlockSetting& setting, const Segments& segments);

LocalParameters local_parameters(const Block& block, const BlockSetting& setting);

}  // namespace weft
