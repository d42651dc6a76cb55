#pragma once

#include <optional>

#include "weft/layers/activation.h"
#include "weft/layers/context_attention.h"
#include "weft/layers/kv_cache.h"
#include "weft/layers/moe.h"
#include "weft/layers/norm.h"
#include "weft/layers/parameter.h"
#include "weft/layers/run_context.h"

namespace weft {

/// Root-mean-square norm, or layer norm where there is a bias.
struct NormLayer {
  ParameterPtr weight;
  ParameterPtr bias;
  double epsilon = 0;

  at::Tensor forward(const at::Tensor& x) const;
  /// x + added, or x where nothing is added, and its norm.
  RowsAndNorm add(const at::Tensor& x, at::Tensor added = {}) const;
};

/// What attention needs to know of the rows that it is given.
struct AttentionCall {
  const PackedSegments& segments;        ///< of all rows, also where they are shared out
  const RotaryTable& rotary;             ///< of the rows that are here
  KvCache* cache = nullptr;              ///< of one sequence, while it is generated
  int64_t layer = 0;                     ///< in the cache
  const ContextRows* context = nullptr;  ///< where rows are shared out
};

struct AttentionLayer {
  HeadCounts heads;
  int64_t first_head = 0;  ///< of all heads, where they are dealt out over ranks
  AttentionMask mask;
  double dropout = 0;  ///< of the weights between rows
  int64_t number = 0;  ///< of the layer in its module
  ParameterPtr qkv;
  ParameterPtr qkv_bias;
  ParameterPtr q_norm;  ///< of every query head, where heads have norms
  ParameterPtr k_norm;
  bool norms_rows = false;  ///< of all query heads together instead, and of all key heads
  double norm_epsilon = 0;
  ParameterPtr out;
  ParameterPtr out_bias;

  at::Tensor forward(const at::Tensor& x, const AttentionCall& call, const RunContext& context) const;
};

/// Plain, or gated where `up` holds gate and up, one below the other.
struct MlpLayer {
  Activation activation = Activation::kSilu;
  bool is_gated = true;
  double dropout = 0;  ///< of what the activation gives
  int64_t number = 0;  ///< of the layer in its module
  ParameterPtr up;
  ParameterPtr up_bias;
  ParameterPtr down;
  ParameterPtr down_bias;

  at::Tensor forward(const at::Tensor& x, const RunContext& context) const;
};

/// x + attention(norm(x)), then x + mlp(norm(x)). Where a program computes the first half, or both, that is not here.
struct TransformerLayer {
  NormLayer attention_norm;
  AttentionLayer attention;
  NormLayer mlp_norm;
  MlpLayer mlp;
  std::optional<MoeLayer> moe;   ///< instead of the MLP
  ParameterPtr attention_scale;  ///< what is added to rows is multiplied by these, where there are any
  ParameterPtr mlp_scale;
  double attention_dropout = 0;  ///< of what each half adds to rows
  double mlp_dropout = 0;
  int64_t number = 0;  ///< of the layer in its module

  at::Tensor forward(const at::Tensor& x, const AttentionCall& call, const RunContext& context) const;
  bool has_mlp_half() const { return mlp_norm.weight != nullptr; }
  /// The second half, of rows that the first gave.
  at::Tensor forward_mlp(const at::Tensor& attended, const RunContext& context) const;

 private:
  at::Tensor add_mapped(const RowsAndNorm& attended, const RunContext& context) const;
};

}  // namespace weft
