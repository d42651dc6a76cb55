#pragma once

#include "weft/spec/model.h"

namespace weft {

enum class NormKind { kRms, kLayer };

/// The attention half of a transformer layer.
struct AttentionShape {
  Attention attention;
  int64_t q_bias = 0;  ///< bias elements of each projection
  int64_t k_bias = 0;
  int64_t v_bias = 0;
  int64_t out_bias = 0;
  bool norms_heads = false;  ///< Qwen3's norm of every query and key head
  bool has_rotary = true;
};

/// Where a block drops activations at random.
struct DropoutShape {
  bool in_attention = false;
  bool in_sums = false;
};

/// The other half: a plain or gated MLP, or `experts` of them with a router in front.
struct MlpShape {
  int64_t intermediate = 0;
  bool is_gated = true;
  bool has_bias = false;
  int64_t experts = 0;  ///< 0: dense
  int64_t experts_per_token = 0;
};

struct TransformerBlockShape {
  std::string name;
  int64_t width = 0;
  NormKind norm = NormKind::kRms;
  AttentionShape attention;
  MlpShape mlp;
  DropoutShape dropout = {};
};

/// norm → attention → sum → norm → MLP → sum.
Block make_transformer_block(const TransformerBlockShape& shape);

Op make_norm(std::string name, NormKind kind, int64_t width);

}  // namespace weft
