#include "weft/models/vision/vision_encoder.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/reciprocal.h>
#include <ATen/ops/sin.h>
#include <fmt/format.h>

#include "weft/layers/linear.h"
#include "weft/models/layer_shape.h"
#include "weft/models/transformer_weights.h"

namespace weft {
namespace {

constexpr double kVisionNormEpsilon = 1e-6;

/// The first generation has layer norms, the second root-mean-square ones.
NormLayer make_norm_layer(const WeightMaker& make, const std::string& name, int64_t width, bool is_first_generation) {
  return is_first_generation ? make.layer_norm(name, width, kVisionNormEpsilon)
                             : make.rms_norm(name, width, kVisionNormEpsilon);
}

AttentionLayer make_attention(const std::string& name, const LayerShape& shape, bool has_separate_qkv,
                              const WeightMaker& make) {
  const HeadCounts& heads = shape.heads;
  const auto pieces = [&](const std::string& ending, int64_t width) {
    if (!has_separate_qkv) return fused_qkv_weights(name + ".attn.qkv" + ending, heads, width);
    return qkv_weights({name + ".attn.q" + ending, name + ".attn.k" + ending, name + ".attn.v" + ending}, heads, width);
  };
  const WeightCut by_heads{.unit = CutUnit::kQueryHeads, .dim = 1, .heads = heads};
  AttentionLayer layer{.heads = heads};
  layer.qkv = make.matrix(pieces(".weight", shape.width), heads.packed_width(), shape.width);
  layer.qkv_bias = make.bias(pieces(".bias", 0), heads.packed_width());
  layer.out = make.matrix({whole_weight(name + ".attn.proj.weight", {shape.width, shape.width}, by_heads)}, shape.width,
                          shape.width);
  layer.out_bias = make.bias({whole_weight(name + ".attn.proj.bias", {shape.width})}, shape.width);
  return layer;
}

/// Rows of equal width, one weight below the other, with their biases.
struct MlpNames {
  std::vector<std::string> up;
  std::string down;
};

MlpLayer make_mlp(const MlpNames& names, const LayerShape& shape, Activation activation, const WeightMaker& make) {
  const int64_t inner = shape.intermediate;
  std::vector<WeightPiece> up;
  std::vector<WeightPiece> up_bias;
  for (const std::string& name : names.up) {
    up.push_back(whole_weight(name + ".weight", {inner, shape.width}, kCutOutputs));
    up_bias.push_back(whole_weight(name + ".bias", {inner}, kCutOutputs));
  }
  const auto up_rows = inner * static_cast<int64_t>(names.up.size());
  MlpLayer layer{.activation = activation, .is_gated = names.up.size() == 2};
  layer.up = make.matrix(std::move(up), up_rows, shape.width);
  layer.up_bias = make.bias(std::move(up_bias), up_rows);
  layer.down =
      make.matrix({whole_weight(names.down + ".weight", {shape.width, inner}, kCutInputs)}, shape.width, inner);
  layer.down_bias = make.bias({whole_weight(names.down + ".bias", {shape.width})}, shape.width);
  return layer;
}

}  // namespace

VisionEncoder::VisionEncoder(const Module& module, const VisionNumbers& numbers, const std::string& prefix,
                             const BlockRange& blocks, ParameterMaker& maker)
    : numbers_(numbers) {
  const WeightMaker make{.maker = maker, .deviation = numbers.deviation};
  const bool is_first_generation = numbers.window_size == 0;
  const std::string visual = prefix + "visual.";
  head_dim_ = layer_shape(module.layer_kinds.front()).heads.head_dim;
  if (blocks.has_entry) {
    const std::vector<int64_t> shape = {module.width, numbers.channels, numbers.temporal_patch_size, numbers.patch_size,
                                        numbers.patch_size};
    patch_embedding_ =
        make.matrix({whole_weight(visual + "patch_embed.proj.weight", shape)}, module.width, numbers.patch_elements());
  }
  const int64_t end = blocks.end_layer(static_cast<int64_t>(module.layers.size()));
  for (int64_t index = blocks.first_layer; index < end; ++index) {
    maker.next_block();
    const LayerShape shape = layer_shape(module.layer_kinds[module.layers[static_cast<size_t>(index)]]);
    const std::string name = fmt::format("{}blocks.{}", visual, index);
    const std::string mlp = name + ".mlp.";
    const MlpNames names = is_first_generation ? MlpNames{{mlp + "fc1"}, mlp + "fc2"}
                                               : MlpNames{{mlp + "gate_proj", mlp + "up_proj"}, mlp + "down_proj"};
    TransformerLayer layer;
    layer.attention_norm = make_norm_layer(make, name + ".norm1", shape.width, is_first_generation);
    layer.attention = make_attention(name, shape, numbers.has_separate_qkv, make);
    layer.mlp_norm = make_norm_layer(make, name + ".norm2", shape.width, is_first_generation);
    layer.mlp = make_mlp(names, shape, numbers.activation, make);
    layers_.push_back(std::move(layer));
    is_windowed_.push_back(shape.mask == Mask::kWindowed);
  }
  if (!blocks.has_exit) return;
  maker.next_block();
  const int64_t merged = module.width * numbers.merge_size * numbers.merge_size;
  norm_ = make_norm_layer(make, visual + "merger.ln_q", module.width, is_first_generation);
  merger_.activation = Activation::kGelu;
  merger_.is_gated = false;
  merger_.up =
      make.matrix({whole_weight(visual + "merger.mlp.0.weight", {merged, merged}, kCutOutputs)}, merged, merged);
  merger_.up_bias = make.bias({whole_weight(visual + "merger.mlp.0.bias", {merged}, kCutOutputs)}, merged);
  merger_.down = make.matrix({whole_weight(visual + "merger.mlp.2.weight", {module.output_width, merged}, kCutInputs)},
                             module.output_width, merged);
  merger_.down_bias =
      make.bias({whole_weight(visual + "merger.mlp.2.bias", {module.output_width})}, module.output_width);
}

at::Tensor VisionEncoder::embed_patches(const VisionInputs& inputs, const RunContext& context) const {
  return linear(context.own_rows(inputs.pixels), patch_embedding_, {}, context);
}

RotaryTable VisionEncoder::rotary(const at::Tensor& positions, at::ScalarType type) const {
  // Half of a head's pairs turn by the row, the other half by the column, with the same frequencies.
  const at::ScalarType exact = type == at::kDouble ? at::kDouble : at::kFloat;
  const int64_t half = head_dim_ / 2;
  const at::Tensor exponents = at::arange(0, half, 2, exact) / static_cast<double>(half);
  const at::Tensor frequencies = at::reciprocal(at::pow(numbers_.rope_theta, exponents)).to(positions.device());
  const at::Tensor angles = (positions.to(exact).unsqueeze(2) * frequencies).flatten(1);
  return {at::cos(angles), at::sin(angles)};
}

at::Tensor VisionEncoder::layer(int64_t index, const at::Tensor& x, const VisionInputs& inputs,
                                const RotaryTable& rotary, const RunContext& context, const ContextRows* shared) const {
  const auto place = static_cast<size_t>(index);
  const AttentionCall call{
      .segments = is_windowed_[place] ? inputs.windows : inputs.frames, .rotary = rotary, .context = shared};
  return layers_[place].forward(x, call, context);
}

at::Tensor VisionEncoder::merge(const at::Tensor& x, const VisionInputs& inputs, const RunContext& context,
                                const RunContext& merged) const {
  const auto in_order = [&](const at::Tensor& rows) {
    return inputs.output_order.defined() ? rows.index_select(0, inputs.output_order) : rows;
  };
  // Patches that are merged may lie on two ranks, and so may rows that change places: both happen to whole rows.
  const auto merge_patches = [rows = inputs.num_rows, width = merger_.up->value.size(1)](const at::Tensor& whole) {
    return whole.view({rows, width});
  };
  const at::Tensor wide = activate(
      entered_linear(norm_.forward(x), merger_.up, merger_.up_bias, context, merge_patches), merger_.activation);
  if (merged.sites == nullptr) return in_order(linear(wide, merger_.down, merger_.down_bias, context));
  return add_bias(merged.leave(in_order(linear(wide, merger_.down, {}, context))), merger_.down_bias);
}

}  // namespace weft
