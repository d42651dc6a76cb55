#include "weft/models/audio/audio_encoder.h"

#include <cmath>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/zeros.h>

#include "weft/layers/linear.h"

namespace weft {
namespace {

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

AudioEncoder::AudioEncoder(const Module& module, const BlockRange& blocks, ParameterMaker& maker) {
  if (blocks.has_entry) {
    const OpParameterMaker entry = ends_of(module, maker).entry;
    first_convolution_ = entry.make("convolution.mel");
    second_convolution_ = entry.make("convolution.stride");
  }
  make_layers(module, blocks, /*normalizes_expert_weights=*/false, maker);
  if (!blocks.has_exit) return;
  maker.next_block();
  const OpParameterMaker exit = ends_of(module, maker).exit;
  norm_ = exit.norm("norm");
  projection_ = exit.make("projection");
  marks_ = exit.make("clip_marks").weight;
}

at::Tensor AudioEncoder::enter(const Inputs& inputs, const std::vector<MediaRows>& /*media*/,
                               const RunContext& context) const {
  return convolve(*inputs.audio, context);
}

LayerPass AudioEncoder::begin(const Inputs& inputs, at::ScalarType /*type*/) const {
  return {.segments = inputs.audio->chunks, .windows = inputs.audio->chunks, .rotary = {}};
}

at::Tensor AudioEncoder::leave(const LayerRows& rows, const Inputs& inputs, const RunContext& context,
                               const RunContext& outside) const {
  return pool(rows.last, *inputs.audio, context, outside);
}

at::Tensor AudioEncoder::convolve(const AudioInputs& inputs, const RunContext& context) const {
  const Taps taps = own_taps(inputs, context);
  const at::Tensor first = activate(
      linear(gather_taps(inputs.frames, taps.first), first_convolution_.weight, first_convolution_.bias, context),
      Activation::kGelu);
  const at::Tensor second =
      activate(linear(gather_taps(first, taps.second), second_convolution_.weight, second_convolution_.bias, context),
               Activation::kGelu);
  const at::Tensor positions = context.own_rows(inputs.row_positions);
  return second + sinusoids(positions, second.size(1), second.scalar_type()).to(second.options());
}

at::Tensor AudioEncoder::pool(const at::Tensor& x, const AudioInputs& inputs, const RunContext& context,
                              const RunContext& pooled) const {
  // The rows of a pair may lie on two ranks, so they are made whole; each rank then pools its own.
  const at::Tensor rows = context.divides_rows() ? context.enter(x) : x;
  const at::Tensor first = pooled.own_rows(inputs.pooled_rows);
  const at::Tensor pairs = rows.index_select(0, first) + rows.index_select(0, first + 1);
  return linear(norm_.forward(pairs / 2), projection_.weight, projection_.bias, context);
}

}  // namespace weft
