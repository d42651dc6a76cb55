#include "weft/layers/transformer_layer.h"

#include <utility>

#include <ATen/TensorOperators.h>

#include "weft/base/check.h"
#include "weft/layers/linear.h"

namespace weft {
namespace {

at::Tensor row_cut_linear(const at::Tensor& x, const ParameterPtr& weight, const ParameterPtr& bias,
                          const RunContext& context) {
  if (context.sites == nullptr) return linear(x, weight, bias, context);
  return leave_with_bias(linear(x, weight, {}, context), bias, context);
}

at::Tensor scaled(const at::Tensor& x, const ParameterPtr& weight) {
  return weight ? scale_columns(x, weight) : x;
}

at::Tensor attend_with_cache(const at::Tensor& qkv, const AttentionLayer& layer, const AttentionCall& call) {
  const HeadCounts& h = layer.heads;
  const at::Tensor all = qkv.view({qkv.size(0), h.heads + 2 * h.kv_heads, h.head_dim});
  if (call.rotary.is_defined()) rotate_(all.narrow(1, 0, h.heads + h.kv_heads), call.rotary);
  const KvCache::Rows past = call.cache->append(call.layer, all.narrow(1, h.heads, h.kv_heads),
                                                all.narrow(1, h.heads + h.kv_heads, h.kv_heads));
  return attention_with_past(all.narrow(1, 0, h.heads), past.keys, past.values, layer.mask);
}

at::Tensor attend(const at::Tensor& qkv, const AttentionLayer& layer, const AttentionCall& call,
                  const RunContext& context) {
  if (call.cache != nullptr) return attend_with_cache(qkv, layer, call);
  const AttentionKeeps keeps = context.recomputes_attention ? AttentionKeeps::kNothing : AttentionKeeps::kResults;
  std::optional<AttentionDropout> dropout;
  if (context.dropout != nullptr && layer.dropout > 0) {
    dropout = {.probability = layer.dropout,
               .key = dropout_key(*context.dropout, layer.number, DropoutSite::kAttention),
               .rows = context.dropout->of_all(),
               .first_head = layer.first_head};
  }
  if (call.context != nullptr)
    return context_attention(qkv, layer.heads, call.rotary, call.segments, layer.mask, keeps, *call.context, dropout);
  return attention_core(qkv, layer.heads, call.rotary, call.segments, layer.mask, keeps, dropout);
}

}  // namespace

at::Tensor NormLayer::forward(const at::Tensor& x) const {
  return bias ? layer_norm(x, weight, bias, epsilon) : rms_norm(x, weight, epsilon);
}

RowsAndNorm NormLayer::add(const at::Tensor& x, at::Tensor added) const {
  return add_and_norm(x, std::move(added), weight, bias, epsilon);
}

at::Tensor AttentionLayer::forward(const at::Tensor& x, const AttentionCall& call, const RunContext& context) const {
  at::Tensor packed = entered_linear(x, qkv, qkv_bias, context);
  if (q_norm) {
    const int64_t queries = norms_rows ? 1 : heads.heads, keys = norms_rows ? 1 : heads.kv_heads;
    packed = norm_heads(packed, q_norm, k_norm, queries, keys, norm_epsilon);
  }
  const at::Tensor mixed = attend(packed, *this, call, context);
  return row_cut_linear(mixed, out, out_bias, context);
}

at::Tensor MlpLayer::forward(const at::Tensor& x, const RunContext& context) const {
  const at::Tensor wide = entered_linear(x, up, up_bias, context);
  const MlpActivation between{.activation = activation, .is_gated = is_gated};
  if (context.dropout != nullptr && dropout > 0) {
    // Rows are whole here, and their columns are those that this rank's part of the next weight takes.
    const at::Tensor left =
        drop_elements(between(wide), context.dropout->rows, dropout,
                      dropout_key(*context.dropout, number, DropoutSite::kMlp), down->spec.pieces.front().first_column);
    return row_cut_linear(left, down, down_bias, context);
  }
  if (context.sites == nullptr) return activated_linear(wide, between, down, down_bias, context);
  return leave_with_bias(activated_linear(wide, between, down, {}, context), down_bias, context);
}

at::Tensor TransformerLayer::forward(const at::Tensor& x, const AttentionCall& call, const RunContext& context) const {
  // What the first half made is let go of before the other half runs.
  RowsAndNorm first = attention_norm.add(x);
  at::Tensor added;
  {
    const at::Tensor normed = std::exchange(first.normed, {});
    added = context.drop(scaled(attention.forward(normed, call, context), attention_scale), attention_dropout, number,
                         DropoutSite::kAttentionSum);
  }
  return add_mapped(mlp_norm.add(first.rows, std::move(added)), context);
}

at::Tensor TransformerLayer::forward_mlp(const at::Tensor& attended, const RunContext& context) const {
  return add_mapped(mlp_norm.add(attended), context);
}

at::Tensor TransformerLayer::add_mapped(const RowsAndNorm& attended, const RunContext& context) const {
  const at::Tensor& normed = attended.normed;
  const at::Tensor mapped = scaled(moe ? moe->forward(normed, context) : mlp.forward(normed, context), mlp_scale);
  return attended.rows + context.drop(mapped, mlp_dropout, number, DropoutSite::kMlpSum);
}

}  // namespace weft
