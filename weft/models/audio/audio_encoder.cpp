#include "weft/models/audio/audio_encoder.h"

#include <cmath>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include "weft/layers/linear.h"
#include "weft/models/layer_shape.h"
#include "weft/models/transformer_weights.h"

namespace weft {
namespace {

constexpr double kAudioNormEpsilon = 1e-5;
constexpr double kLongestTimescale = 10000;

/// Every row's three taps side by side, as a convolution's weight [out, channels, 3] orders them.
at::Tensor gather_taps(const at::Tensor& rows, const at::Tensor& taps) {
  const at::Tensor padded = at::cat({rows, at::zeros({1, rows.size(1)}, rows.options())});
  return padded.index_select(0, taps).view({-1, 3, rows.size(1)}).transpose(1, 2).reshape({-1, 3 * rows.size(1)});
}

/// What both convolutions see for the rows that a rank has.
struct Taps {
  at::Tensor first;
  at::Tensor second;
};

/// Frames at the edge of a rank's rows are convolved by both neighbours.
Taps own_taps(const AudioInputs& inputs, const RunContext& context) {
  if (!context.divides_rows()) return {inputs.first_taps, inputs.second_taps};
  constexpr int64_t kTaps = 3;
  const at::Tensor taps = context.own_rows(inputs.second_taps, kTaps);
  const at::Tensor is_nothing = taps.eq(inputs.frames.size(0));
  const at::Tensor seen = taps.masked_select(is_nothing.logical_not());
  if (seen.size(0) == 0) return {inputs.first_taps.narrow(0, 0, 0), taps};
  const auto begin = seen.min().item<int64_t>();
  const auto count = seen.max().item<int64_t>() + 1 - begin;
  return {inputs.first_taps.narrow(0, begin * kTaps, count * kTaps), (taps - begin).masked_fill_(is_nothing, count)};
}

/// Sines of falling frequency, then cosines.
at::Tensor sinusoids(const at::Tensor& positions, int64_t width, at::ScalarType type) {
  const at::ScalarType exact = type == at::kDouble ? at::kDouble : at::kFloat;
  const int64_t half = width / 2;
  const double step = std::log(kLongestTimescale) / static_cast<double>(half - 1);
  const at::Tensor scales = at::exp(at::arange(half, exact) * -step).to(positions.device());
  const at::Tensor angles = positions.to(exact).unsqueeze(1) * scales;
  return at::cat({at::sin(angles), at::cos(angles)}, 1);
}

}  // namespace

AudioEncoder::AudioEncoder(const Module& module, const AudioNumbers& numbers, const std::string& prefix,
                           const BlockRange& blocks, ParameterMaker& maker)
    : numbers_(numbers) {
  const WeightMaker make{.maker = maker, .deviation = numbers.deviation};
  const std::string tower = prefix + "audio_tower.";
  const int64_t width = module.width;
  if (blocks.has_entry) {
    const int64_t bins = numbers.mel_bins;
    first_convolution_ = make.matrix({whole_weight(tower + "conv1.weight", {width, bins, 3})}, width, 3 * bins);
    first_bias_ = make.bias({whole_weight(tower + "conv1.bias", {width})}, width);
    second_convolution_ = make.matrix({whole_weight(tower + "conv2.weight", {width, width, 3})}, width, 3 * width);
    second_bias_ = make.bias({whole_weight(tower + "conv2.bias", {width})}, width);
  }
  const int64_t end = blocks.end_layer(static_cast<int64_t>(module.layers.size()));
  for (int64_t index = blocks.first_layer; index < end; ++index) {
    maker.next_block();
    const LayerShape shape = layer_shape(module.layer_kinds[module.layers[static_cast<size_t>(index)]]);
    const std::string name = fmt::format("{}layers.{}.", tower, index);
    const std::string attention = name + "self_attn.";
    const HeadCounts& heads = shape.heads;
    const WeightCut by_heads{.unit = CutUnit::kQueryHeads, .dim = 1, .heads = heads};
    TransformerLayer layer;
    layer.attention_norm = make.layer_norm(name + "self_attn_layer_norm", width, kAudioNormEpsilon);
    layer.attention.heads = heads;
    layer.attention.qkv =
        make.matrix(qkv_weights({attention + "q_proj.weight", attention + "k_proj.weight", attention + "v_proj.weight"},
                                heads, width),
                    heads.packed_width(), width);
    layer.attention.qkv_bias = make.bias(
        qkv_weights({attention + "q_proj.bias", "", attention + "v_proj.bias"}, heads, 0), heads.packed_width());
    layer.attention.out =
        make.matrix({whole_weight(attention + "out_proj.weight", {width, width}, by_heads)}, width, width);
    layer.attention.out_bias = make.bias({whole_weight(attention + "out_proj.bias", {width})}, width);
    layer.mlp_norm = make.layer_norm(name + "final_layer_norm", width, kAudioNormEpsilon);
    const int64_t inner = shape.intermediate;
    layer.mlp = {.activation = numbers.activation, .is_gated = false};
    layer.mlp.up = make.matrix({whole_weight(name + "fc1.weight", {inner, width}, kCutOutputs)}, inner, width);
    layer.mlp.up_bias = make.bias({whole_weight(name + "fc1.bias", {inner}, kCutOutputs)}, inner);
    layer.mlp.down = make.matrix({whole_weight(name + "fc2.weight", {width, inner}, kCutInputs)}, width, inner);
    layer.mlp.down_bias = make.bias({whole_weight(name + "fc2.bias", {width})}, width);
    layers_.push_back(std::move(layer));
  }
  if (!blocks.has_exit) return;
  maker.next_block();
  norm_ = make.layer_norm(tower + "ln_post", width, kAudioNormEpsilon);
  projection_ =
      make.matrix({whole_weight(tower + "proj.weight", {module.output_width, width})}, module.output_width, width);
  projection_bias_ = make.bias({whole_weight(tower + "proj.bias", {module.output_width})}, module.output_width);
  marks_ = make.matrix({whole_weight(tower + "audio_bos_eos_token.weight", {2, module.output_width})}, 2,
                       module.output_width);
}

at::Tensor AudioEncoder::convolve(const AudioInputs& inputs, const RunContext& context) const {
  const Taps taps = own_taps(inputs, context);
  const at::Tensor first = activate(
      linear(gather_taps(inputs.frames, taps.first), first_convolution_, first_bias_, context), Activation::kGelu);
  const at::Tensor second =
      activate(linear(gather_taps(first, taps.second), second_convolution_, second_bias_, context), Activation::kGelu);
  const at::Tensor positions = context.own_rows(inputs.row_positions);
  return second + sinusoids(positions, second.size(1), second.scalar_type()).to(second.options());
}

at::Tensor AudioEncoder::layer(int64_t index, const at::Tensor& x, const AudioInputs& inputs, const RunContext& context,
                               const ContextRows* shared) const {
  const RotaryTable unturned;
  const AttentionCall call{.segments = inputs.chunks, .rotary = unturned, .context = shared};
  return layers_[static_cast<size_t>(index)].forward(x, call, context);
}

at::Tensor AudioEncoder::pool(const at::Tensor& x, const AudioInputs& inputs, const RunContext& context,
                              const RunContext& pooled) const {
  // The rows of a pair may lie on two ranks, so they are made whole; each rank then pools its own.
  const at::Tensor rows = context.divides_rows() ? context.enter(x) : x;
  const at::Tensor first = pooled.own_rows(inputs.pooled_rows);
  const at::Tensor pairs = rows.index_select(0, first) + rows.index_select(0, first + 1);
  return linear(norm_.forward(pairs / 2), projection_, projection_bias_, context);
}

}  // namespace weft
