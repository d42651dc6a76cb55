#include "weft/models/vision/image_tower.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "weft/layers/embedding.h"
#include "weft/layers/linear.h"
#include "weft/program/dropping_ops.h"

namespace weft {
namespace {

std::optional<NormLayer> norm_if_any(const OpParameterMaker& make, const char* name) {
  if (find_op(make.block(), name) == nullptr) return std::nullopt;
  return make.norm(name);
}

}  // namespace

ImageTower::ImageTower(const Module& module, const VisionNumbers& numbers, const BlockRange& blocks,
                       ParameterMaker& maker)
    : numbers_(numbers) {
  const ModuleEnds ends = ends_of(module, maker);
  if (blocks.has_entry) {
    patch_embedding_ = ends.entry.make("patch_embedding");
    class_token_ = ends.entry.make("class_token").weight;
    if (find_op(module.entry, "positions") != nullptr) positions_ = ends.entry.make("positions").weight;
    if (const Op* dropping = find_op(module.entry, "embedding.dropout")) dropout_ = dropout_of(*dropping);
    first_norm_ = norm_if_any(ends.entry, "first_norm");
  }
  make_layers(module, blocks, /*normalizes_expert_weights=*/false, maker);
  if (!blocks.has_exit) return;
  maker.next_block();
  last_norm_ = norm_if_any(ends.exit, "norm");
  merged_norm_ = norm_if_any(ends.exit, "projector.norm");
  activation_ = std::get<Pointwise>(op_named(module.exit, "projector.activation").shape).activation;
  up_ = ends.exit.make("projector.up");
  down_ = ends.exit.make("projector.down");
}

at::Tensor ImageTower::enter(const Inputs& inputs, const std::vector<MediaRows>& /*media*/,
                             const RunContext& context) const {
  at::Tensor patches =
      linear(context.own_rows(inputs.vision->pixels), patch_embedding_.weight, patch_embedding_.bias, context);
  const at::Tensor places = context.own_rows(inputs.vision->positions);
  // The class's rows have no pixels: what was made of them is put aside. Nobody needs to know where they are.
  const at::Tensor class_row = embed(at::zeros({1}, places.options()), class_token_);
  at::Tensor x = at::where(places == 0, class_row, patches);
  patches.reset();  // what follows needs as much memory again
  if (positions_) x = x + embed(places.squeeze(1), positions_);
  x = context.drop(x, dropout_, /*layer=*/0, DropoutSite::kEmbedding);
  return first_norm_ ? first_norm_->forward(x) : x;
}

LayerPass ImageTower::begin(const Inputs& inputs, at::ScalarType /*type*/) const {
  return {.segments = inputs.vision->frames, .windows = {}, .rotary = {}};
}

at::Tensor ImageTower::project(const at::Tensor& x, const VisionInputs& inputs, const RunContext& context) const {
  // Patches that are merged may lie on several ranks: it happens to whole rows.
  const auto merge = [patches = inputs.patch_rows, rows = inputs.num_rows,
                      width = up_.weight->value.size(1)](const at::Tensor& whole) {
    return whole.index_select(0, patches).view({rows, width});
  };
  if (!merged_norm_) return entered_linear(x, up_.weight, up_.bias, context, merge);
  return linear(merged_norm_->forward(merge(context.enter(x))), up_.weight, up_.bias, context);
}

at::Tensor ImageTower::leave(const LayerRows& rows, const Inputs& inputs, const RunContext& context,
                             const RunContext& outside) const {
  const at::Tensor normed = last_norm_ ? last_norm_->forward(rows.last) : rows.last;
  const at::Tensor wide = activate(project(normed, *inputs.vision, context), activation_);
  if (outside.sites == nullptr) return linear(wide, down_.weight, down_.bias, context);
  return leave_with_bias(linear(wide, down_.weight, {}, context), down_.bias, outside);
}

}  // namespace weft
