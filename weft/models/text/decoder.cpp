#include "weft/models/text/decoder.h"

#include <algorithm>

#include <ATen/TensorOperators.h>
#include <fmt/format.h>

#include "weft/layers/embedding.h"
#include "weft/layers/linear.h"
#include "weft/layers/loss.h"
#include "weft/models/layer_shape.h"
#include "weft/models/text/rope_table.h"
#include "weft/models/transformer_weights.h"

namespace weft {
namespace {

AttentionLayer make_attention(const std::string& name, const LayerShape& shape, double epsilon,
                              const WeightMaker& make) {
  const HeadCounts& heads = shape.heads;
  const int64_t q_width = heads.heads * heads.head_dim;
  const std::string attention = name + ".self_attn.";
  AttentionLayer layer{.heads = heads,
                       .mask = {.is_causal = true, .window = shape.mask == Mask::kSliding ? shape.window : 0},
                       .norm_epsilon = epsilon};
  const auto names = [&](const char* ending) {
    return QkvNames{attention + "q_proj" + ending, attention + "k_proj" + ending, attention + "v_proj" + ending};
  };
  layer.qkv = make.matrix(qkv_weights(names(".weight"), heads, shape.width), heads.packed_width(), shape.width);
  if (shape.qkv_bias_elements > 0) {
    layer.qkv_bias = make.bias(qkv_weights(names(".bias"), heads, 0), heads.packed_width());
  }
  if (shape.norms_heads) {
    layer.q_norm = make.head_norm(attention + "q_norm", heads.head_dim);
    layer.k_norm = make.head_norm(attention + "k_norm", heads.head_dim);
  }
  const WeightCut by_heads{.unit = CutUnit::kQueryHeads, .dim = 1, .heads = heads};
  layer.out =
      make.matrix({whole_weight(attention + "o_proj.weight", {shape.width, q_width}, by_heads)}, shape.width, q_width);
  if (shape.has_out_bias)
    layer.out_bias = make.bias({whole_weight(attention + "o_proj.bias", {shape.width})}, shape.width);
  return layer;
}

MlpLayer make_mlp(const std::string& name, const LayerShape& shape, const WeightMaker& make) {
  const int64_t inner = shape.intermediate;
  const std::string mlp = name + ".mlp.";
  MlpLayer layer;
  layer.up = make.matrix({whole_weight(mlp + "gate_proj.weight", {inner, shape.width}, kCutOutputs),
                          whole_weight(mlp + "up_proj.weight", {inner, shape.width}, kCutOutputs)},
                         2 * inner, shape.width);
  layer.down =
      make.matrix({whole_weight(mlp + "down_proj.weight", {shape.width, inner}, kCutInputs)}, shape.width, inner);
  if (shape.has_mlp_bias) {
    layer.up_bias = make.bias({whole_weight(mlp + "gate_proj.bias", {inner}, kCutOutputs),
                               whole_weight(mlp + "up_proj.bias", {inner}, kCutOutputs)},
                              2 * inner);
    layer.down_bias = make.bias({whole_weight(mlp + "down_proj.bias", {shape.width})}, shape.width);
  }
  return layer;
}

MoeLayer make_moe(const std::string& name, const LayerShape& shape, const TextNumbers& numbers,
                  const WeightMaker& make) {
  const int64_t inner = shape.intermediate;
  const int64_t width = shape.width;
  const std::string mlp = name + ".mlp.";
  MoeLayer layer{.experts_per_token = shape.experts_per_token, .normalizes_weights = numbers.normalizes_expert_weights};
  std::vector<WeightPiece> up;
  std::vector<WeightPiece> down;
  for (int64_t expert = 0; expert < shape.experts; ++expert) {
    const std::string prefix = fmt::format("{}experts.{}.", mlp, expert);
    const auto add = [&](std::vector<WeightPiece>& pieces, const char* what, std::vector<int64_t> size, WeightCut cut) {
      pieces.push_back(whole_weight(prefix + what, std::move(size), cut));
      pieces.back().is_expert = true;
    };
    add(up, "gate_proj.weight", {inner, width}, kCutOutputs);
    add(up, "up_proj.weight", {inner, width}, kCutOutputs);
    add(down, "down_proj.weight", {width, inner}, kCutInputs);
  }
  const Initialization init = Initialization::normal(make.deviation);
  layer.router = make.maker.make({.pieces = {whole_weight(mlp + "gate.weight", {shape.experts, width})},
                                  .shape = {shape.experts, width},
                                  .init = init,
                                  .sees_divided = true});
  layer.gate_up = make.maker.make({.pieces = std::move(up), .shape = {shape.experts, 2 * inner, width}, .init = init});
  layer.down = make.maker.make({.pieces = std::move(down), .shape = {shape.experts, width, inner}, .init = init});
  return layer;
}

TransformerLayer make_layer(const std::string& name, const LayerShape& shape, const TextNumbers& numbers,
                            const WeightMaker& make) {
  TransformerLayer layer;
  layer.attention_norm = make.rms_norm(name + ".input_layernorm", shape.width, numbers.norm_epsilon);
  layer.attention = make_attention(name, shape, numbers.norm_epsilon, make);
  layer.mlp_norm = make.rms_norm(name + ".post_attention_layernorm", shape.width, numbers.norm_epsilon);
  if (shape.experts > 0) {
    layer.moe = make_moe(name, shape, numbers, make);
  } else {
    layer.mlp = make_mlp(name, shape, make);
  }
  return layer;
}

at::Tensor placed_media(at::Tensor x, const std::vector<MediaRows>& media, bool are_own = false) {
  for (const MediaRows& kind : media) {
    if (kind.is_own != are_own) continue;
    // No rows are placed, too, if others of them are elsewhere: their backward takes all ranks.
    if (kind.positions.size(0) > 0 || kind.rows.requires_grad()) x = place_rows(x, kind.positions, kind.rows);
  }
  return x;
}

}  // namespace

Decoder::Decoder(const Module& module, const TextNumbers& numbers, bool has_tied_embeddings, const std::string& prefix,
                 const BlockRange& blocks, ParameterMaker& maker)
    : numbers_(numbers) {
  const WeightMaker make{.maker = maker, .deviation = numbers.deviation};
  const auto& table = std::get<Lookup>(op_named(module.entry, "embedding").shape);
  vocabulary_ = table.entries;
  head_dim_ = layer_shape(module.layer_kinds.front()).heads.head_dim;

  const WeightCut by_entries{.unit = CutUnit::kVocabulary};
  const std::vector<int64_t> shape = {table.entries, module.width};
  if (blocks.has_entry || (blocks.has_exit && has_tied_embeddings)) {
    ParameterSpec spec{.pieces = {whole_weight(prefix + "model.embed_tokens.weight", shape, by_entries)},
                       .shape = shape,
                       .init = Initialization::normal(numbers.deviation)};
    spec.init.zero_row = numbers.padding_id;
    embedding_ = maker.make(std::move(spec));
  }
  const int64_t end = blocks.end_layer(static_cast<int64_t>(module.layers.size()));
  for (int64_t index = blocks.first_layer; index < end; ++index) {
    maker.next_block();
    const Block& block = module.layer_kinds[module.layers[static_cast<size_t>(index)]];
    layers_.push_back(make_layer(fmt::format("{}model.layers.{}", prefix, index), layer_shape(block), numbers, make));
  }
  if (!blocks.has_exit) return;
  maker.next_block();
  norm_ = make.rms_norm(prefix + "model.norm", module.width, numbers.norm_epsilon);
  head_ = has_tied_embeddings
              ? embedding_
              : make.matrix({whole_weight(prefix + "lm_head.weight", shape, by_entries)}, table.entries, module.width);
}

at::Tensor Decoder::embed_tokens(const at::Tensor& ids, const std::vector<MediaRows>& media,
                                 const RunContext& context) const {
  const WeightPiece& entries = embedding_->spec.pieces.front();
  at::Tensor x;
  if (entries.num_rows == vocabulary_) {
    x = context.divide(placed_media(embed(ids, embedding_, numbers_.padding_id), media));
  } else {
    // Rows whose token another rank has are zero here, so that all ranks' sum is the embedding.
    const at::Tensor places = ids - entries.first_row;
    const at::Tensor is_elsewhere = places.lt(0).logical_or_(places.ge(entries.num_rows));
    const at::Tensor found =
        embed(places.masked_fill(is_elsewhere, 0), embedding_, numbers_.padding_id - entries.first_row);
    const at::Tensor summand = found.masked_fill(is_elsewhere.unsqueeze(1), 0);
    const bool has_whole = std::any_of(media.begin(), media.end(), [](const MediaRows& kind) { return !kind.is_own; });
    x = has_whole ? context.divide(placed_media(context.sum(summand), media)) : context.leave(summand);
  }
  return placed_media(x, media, /*are_own=*/true);
}

RotaryTable Decoder::rotary(const at::Tensor& positions, at::ScalarType type) const {
  return rope_table(numbers_.rope, head_dim_, positions, type);
}

at::Tensor Decoder::layer(int64_t index, const at::Tensor& x, const AttentionCall& call,
                          const RunContext& context) const {
  return layers_[static_cast<size_t>(index)].forward(x, call, context);
}

at::Tensor Decoder::logits(const at::Tensor& x, const RunContext& context, const at::Tensor& rows) const {
  return entered_linear(norm_.forward(x), head_, {}, context, [rows](const at::Tensor& whole) {
    return rows.defined() && rows.size(0) < whole.size(0) ? whole.index_select(0, rows) : whole;
  });
}

at::Tensor Decoder::loss_sum(const at::Tensor& x, const at::Tensor& rows, const at::Tensor& targets,
                             const RunContext& context) const {
  const at::Tensor part = logits(x, context, rows);
  const WeightPiece& entries = head_->spec.pieces.front();
  if (entries.num_rows == vocabulary_) return cross_entropy_sum(part, targets);
  return cross_entropy_sum(part, targets, entries.first_row, *context.sites->vocabulary);
}

}  // namespace weft
