#include "weft/models/vision/vision_encoder.h"

#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/reciprocal.h>
#include <ATen/ops/sin.h>

#include "weft/layers/embedding.h"
#include "weft/layers/linear.h"

namespace weft {

VisionEncoder::VisionEncoder(const Module& module, const VisionNumbers& numbers, const BlockRange& blocks,
                             ParameterMaker& maker)
    : numbers_(numbers), head_dim_(head_dim_of(module)) {
  if (blocks.has_entry) {
    const OpParameterMaker entry = ends_of(module, maker).entry;
    patch_embedding_ = entry.make("patch_embedding");
    if (find_op(module.entry, "positions") != nullptr) positions_ = entry.make("positions").weight;
  }
  make_layers(module, blocks, /*normalizes_expert_weights=*/false, maker);
  if (!blocks.has_exit) return;
  maker.next_block();
  const OpParameterMaker exit = ends_of(module, maker).exit;
  mergers_.push_back(make_merger(exit, "norm", "merger."));
  for (size_t branch = 0; branch < branch_layers(module).size(); ++branch) {
    const std::string path = "branch." + std::to_string(branch) + ".";
    mergers_.push_back(make_merger(exit, path + "norm", path));
    mergers_.back().norms_merged = true;
  }
}

VisionEncoder::Merger VisionEncoder::make_merger(const OpParameterMaker& exit, const std::string& norm,
                                                 const std::string& mlp) {
  Merger merger{.norm = exit.norm(norm), .mlp = {}};
  merger.mlp.activation = std::get<Pointwise>(op_named(exit.block(), mlp + "activation").shape).activation;
  merger.mlp.is_gated = false;
  const OpParameters up = exit.make(mlp + "up"), down = exit.make(mlp + "down");
  merger.mlp.up = up.weight;
  merger.mlp.up_bias = up.bias;
  merger.mlp.down = down.weight;
  merger.mlp.down_bias = down.bias;
  return merger;
}

at::Tensor VisionEncoder::enter(const Inputs& inputs, const std::vector<MediaRows>& /*media*/,
                                const RunContext& context) const {
  return embed_patches(*inputs.vision, context);
}

LayerPass VisionEncoder::begin(const Inputs& inputs, at::ScalarType type) const {
  LayerPass pass{.segments = inputs.vision->frames,
                 .windows = inputs.vision->windows,
                 .rotary = rotary(inputs.vision->positions, type)};
  add_rotary_rows(pass);
  return pass;
}

at::Tensor VisionEncoder::leave(const LayerRows& rows, const Inputs& inputs, const RunContext& context,
                                const RunContext& outside) const {
  std::vector<at::Tensor> parts = {merge(mergers_.front(), rows.last, *inputs.vision, context, outside)};
  for (size_t branch = 0; branch < rows.branches.size(); ++branch)
    parts.push_back(merge(mergers_[1 + branch], rows.branches[branch], *inputs.vision, context, outside));
  return parts.size() == 1 ? parts.front() : at::cat(parts, 1);
}

at::Tensor VisionEncoder::embed_patches(const VisionInputs& inputs, const RunContext& context) const {
  const at::Tensor x = linear(context.own_rows(inputs.pixels), patch_embedding_.weight, patch_embedding_.bias, context);
  if (!positions_) return x;
  const at::Tensor entries = context.own_rows(inputs.mixed_entries);
  at::Tensor mixed;
  {
    const at::Tensor around =
        embed(entries.reshape({-1}), positions_).view({entries.size(0), entries.size(1), x.size(1)});
    mixed = (around * context.own_rows(inputs.mixed_weights).unsqueeze(2)).sum(1).to(x.scalar_type());
  }
  return x + mixed;
}

RotaryTable VisionEncoder::rotary(const at::Tensor& positions, at::ScalarType type) const {
  // Half of a head's pairs turn by the row, the other half by the column, with the same frequencies.
  const at::ScalarType exact = type == at::kDouble ? at::kDouble : at::kFloat;
  const int64_t half = head_dim_ / 2;
  const at::Tensor exponents = at::arange(0, half, 2, exact) / static_cast<double>(half);
  const at::Tensor frequencies =
      at::reciprocal(at::pow(numbers_.rope_theta, exponents)).to(positions.device(), /*non_blocking=*/true);
  const at::Tensor angles = (positions.to(exact).unsqueeze(2) * frequencies).flatten(1);
  return {at::cos(angles), at::sin(angles)};
}

at::Tensor VisionEncoder::merge(const Merger& merger, const at::Tensor& x, const VisionInputs& inputs,
                                const RunContext& context, const RunContext& merged) {
  const MlpLayer& mlp = merger.mlp;
  const auto in_order = [&](const at::Tensor& rows) {
    return inputs.output_order.defined() ? rows.index_select(0, inputs.output_order) : rows;
  };
  // Patches that are merged may lie on two ranks, and so may rows that change places: both happen to whole rows.
  const auto merge_patches = [rows = inputs.num_rows, width = mlp.up->value.size(1)](const at::Tensor& whole) {
    return whole.reshape({rows, width});
  };
  const at::Tensor up = merger.norms_merged
                            ? linear(merger.norm.forward(merge_patches(context.enter(x))), mlp.up, mlp.up_bias, context)
                            : entered_linear(merger.norm.forward(x), mlp.up, mlp.up_bias, context, merge_patches);
  const at::Tensor wide = activate(up, mlp.activation);
  if (merged.sites == nullptr) return in_order(linear(wide, mlp.down, mlp.down_bias, context));
  at::Tensor summand = in_order(linear(wide, mlp.down, {}, context));
  return leave_with_bias(std::move(summand), mlp.down_bias, merged);
}

}  // namespace weft
