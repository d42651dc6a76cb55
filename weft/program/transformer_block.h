#pragma once

#include <optional>

#include "weft/program/module.h"

namespace weft {

enum class NormKind { kRms, kLayer };

/// The attention half of a transformer layer.
struct AttentionShape {
  Attention attention;
  int64_t q_bias = 0;  ///< bias elements of each projection
  int64_t k_bias = 0;
  int64_t v_bias = 0;
  int64_t out_bias = 0;
  bool norms_heads = false;  ///< every query and key head has a norm
  bool norms_rows = false;   ///< all query heads together have a norm, and all key heads
  double norm_epsilon = 0;   ///< of these norms; 0: that of the block's
  bool has_rotary = true;
};

/// How likely a block drops elements.
struct DropoutShape {
  double in_attention = 0;      ///< of the weights between rows
  double behind_attention = 0;  ///< of what it adds to rows
  double in_mlp = 0;            ///< of what its activation gives; not of experts
  double behind_mlp = 0;
};

/// The other half: a plain or gated MLP, or `experts` of them with a router in front.
struct MlpShape {
  int64_t intermediate = 0;
  bool is_gated = true;
  bool has_bias = false;
  Activation activation = Activation::kSilu;
  int64_t experts = 0;  ///< 0: dense
  int64_t experts_per_token = 0;
};

struct TransformerBlockShape {
  std::string name;
  int64_t width = 0;
  NormKind norm = NormKind::kRms;
  double epsilon = 1e-6;  ///< of norms
  AttentionShape attention;
  MlpShape mlp;
  DropoutShape dropout = {};
  std::optional<double> scale = std::nullopt;  ///< what each half gives is multiplied by a weight, fresh: by this
};

/// norm → attention → sum → norm → MLP → sum.
Block make_transformer_block(const TransformerBlockShape& shape);

Op make_norm(std::string name, NormKind kind, int64_t width, double epsilon);

}  // namespace weft
