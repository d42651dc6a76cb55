#pragma once

#include <cstdint>

#include "weft/layers/attention_core.h"
#include "weft/spec/model.h"

namespace weft {

/// A transformer layer's sizes, read from the block that describes it to the cost model: both halves of Weft build on
/// one description.
struct LayerShape {
  int64_t width = 0;
  HeadCounts heads;
  Mask mask = Mask::kFull;
  int64_t window = 0;
  bool norms_heads = false;
  int64_t qkv_bias_elements = 0;
  bool has_out_bias = false;
  bool is_gated = false;
  bool has_mlp_bias = false;
  int64_t intermediate = 0;
  int64_t experts = 0;  ///< 0: dense
  int64_t experts_per_token = 0;
};

LayerShape layer_shape(const Block& block);

}  // namespace weft
