#include "weft/models/vision/vision_encoder.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/reciprocal.h>
#include <ATen/ops/sin.h>

#include "weft/layers/linear.h"

namespace weft {

VisionEncoder::VisionEncoder(const Module& module, const VisionNumbers& numbers, const BlockRange& blocks,
                             ParameterMaker& maker)
    : numbers_(numbers), head_dim_(head_dim_of(module)) {
  if (blocks.has_entry) patch_embedding_ = ends_of(module, maker).entry.make("patch_embedding");
  make_layers(module, blocks, /*normalizes_expert_weights=*/false, maker);
  if (!blocks.has_exit) return;
  maker.next_block();
  const OpParameterMaker exit = ends_of(module, maker).exit;
  norm_ = exit.norm("norm");
  merger_.activation = std::get<Pointwise>(op_named(module.exit, "merger.activation").shape).activation;
  merger_.is_gated = false;
  const OpParameters up = exit.make("merger.up"), down = exit.make("merger.down");
  merger_.up = up.weight;
  merger_.up_bias = up.bias;
  merger_.down = down.weight;
  merger_.down_bias = down.bias;
}

at::Tensor VisionEncoder::enter(const Inputs& inputs, const std::vector<MediaRows>& /*media*/,
                                const RunContext& context) const {
  return embed_patches(*inputs.vision, context);
}

LayerPass VisionEncoder::begin(const Inputs& inputs, at::ScalarType type) const {
  return {.segments = inputs.vision->frames,
          .windows = inputs.vision->windows,
          .rotary = rotary(inputs.vision->positions, type)};
}

at::Tensor VisionEncoder::leave(const at::Tensor& x, const Inputs& inputs, const RunContext& context,
                                const RunContext& outside) const {
  return merge(x, *inputs.vision, context, outside);
}

at::Tensor VisionEncoder::embed_patches(const VisionInputs& inputs, const RunContext& context) const {
  return linear(context.own_rows(inputs.pixels), patch_embedding_.weight, patch_embedding_.bias, context);
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
