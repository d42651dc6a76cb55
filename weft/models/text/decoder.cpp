#include "weft/models/text/decoder.h"

#include <algorithm>

#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>

#include "weft/layers/embedding.h"
#include "weft/layers/head_loss.h"
#include "weft/layers/linear.h"
#include "weft/layers/loss.h"
#include "weft/models/text/rope_table.h"

namespace weft {
namespace {

at::Tensor placed_media(at::Tensor x, const std::vector<MediaRows>& media, bool are_own = false) {
  for (const MediaRows& kind : media) {
    if (kind.is_own != are_own) continue;
    // No rows are placed, too, if others of them are elsewhere: their backward takes all ranks.
    if (kind.positions.size(0) > 0 || kind.rows.requires_grad()) x = place_rows(x, kind.positions, kind.rows);
  }
  return x;
}

/// These rows of all, or all where they are as many.
ArrangeRows some_of(const at::Tensor& rows) {
  return [rows](const at::Tensor& whole) {
    return rows.defined() && rows.size(0) < whole.size(0) ? whole.index_select(0, rows) : whole;
  };
}

}  // namespace

Decoder::Decoder(const Module& module, const LlmNumbers& numbers, const BlockRange& blocks, ParameterMaker& maker)
    : numbers_(numbers), head_dim_(head_dim_of(module)) {
  const auto& table = std::get<Lookup>(op_named(module.entry, "embedding").shape);
  vocabulary_ = table.entries;
  padding_id_ = table.zero_row;
  const ModuleEnds ends = ends_of(module, maker);
  const bool has_tied_head = std::get<Matmul>(op_named(module.exit, "logits").shape).is_tied;
  if (blocks.has_entry || (blocks.has_exit && has_tied_head)) embedding_ = ends.entry.make("embedding").weight;
  if (blocks.has_entry && find_op(module.entry, "positions") != nullptr)
    positions_ = ends.entry.make("positions").weight;
  if (const Op* sum = find_op(module.entry, "embedding.sum")) dropout_ = std::get<Pointwise>(sum->shape).dropout;
  turns_ = find_op(module.distinct_layers.front(), "attention.rotary") != nullptr;
  make_layers(module, blocks, numbers.normalizes_expert_weights, maker);
  if (!blocks.has_exit) return;
  maker.next_block();
  norm_ = ends.exit.norm("norm");
  head_ = has_tied_head ? embedding_ : ends.exit.make("logits").weight;
}

at::Tensor Decoder::enter(const Inputs& inputs, const std::vector<MediaRows>& media, const RunContext& context) const {
  const at::Tensor x = embed_tokens(inputs.ids, media, context);
  if (!positions_) return x;
  const at::Tensor placed = x + embed(context.own_rows(inputs.positions.select(0, 0)), positions_);
  return context.drop(placed, dropout_, /*layer=*/0, DropoutSite::kEmbedding);
}

LayerPass Decoder::begin(const Inputs& inputs, at::ScalarType type) const {
  LayerPass pass{.segments = inputs.samples,
                 .windows = {},
                 .rotary = turns_ ? rope_table(numbers_.rope, head_dim_, inputs.positions, type) : RotaryTable{}};
  add_rotary_rows(pass);
  return pass;
}

at::Tensor Decoder::leave(const LayerRows& rows, const Inputs& inputs, const RunContext& context,
                          const RunContext& /*outside*/) const {
  return loss_sum(rows.last, inputs.target_rows, inputs.targets, context);
}

at::Tensor Decoder::embed_tokens(const at::Tensor& ids, const std::vector<MediaRows>& media,
                                 const RunContext& context) const {
  const WeightPiece& entries = embedding_->spec.pieces.front();
  at::Tensor x;
  if (entries.num_rows == vocabulary_) {
    x = context.divide(placed_media(embed(ids, embedding_, padding_id_), media));
  } else {
    // Rows whose token another rank has are zero here, so that all ranks' sum is the embedding.
    const at::Tensor places = ids - entries.first_row;
    const at::Tensor is_elsewhere = places.lt(0).logical_or_(places.ge(entries.num_rows));
    const at::Tensor found = embed(places.masked_fill(is_elsewhere, 0), embedding_, padding_id_ - entries.first_row);
    const at::Tensor summand = found.masked_fill(is_elsewhere.unsqueeze(1), 0);
    const bool has_whole = std::any_of(media.begin(), media.end(), [](const MediaRows& kind) { return !kind.is_own; });
    x = has_whole ? context.divide(placed_media(context.sum(summand), media)) : context.leave(summand);
  }
  return placed_media(x, media, /*are_own=*/true);
}

at::Tensor Decoder::logits(const at::Tensor& x, const RunContext& context, const at::Tensor& rows) const {
  return entered_linear(norm_.forward(x), head_, {}, context, some_of(rows));
}

at::Tensor Decoder::next_logits(const at::Tensor& x, const RunContext& context, const RunContext& one) const {
  const at::Tensor part = entered_linear(norm_.forward(x), head_, {}, context,
                                         [](const at::Tensor& whole) { return whole.narrow(0, whole.size(0) - 1, 1); });
  const WeightPiece& entries = head_->spec.pieces.front();
  if (entries.num_rows == vocabulary_) return part;
  const at::Tensor padded = at::zeros({1, vocabulary_}, part.options());
  padded.narrow(1, entries.first_row, entries.num_rows).copy_(part);
  return one.sum(padded);
}

at::Tensor Decoder::loss_sum(const at::Tensor& x, const at::Tensor& rows, const at::Tensor& targets,
                             const RunContext& context) const {
  const WeightPiece& entries = head_->spec.pieces.front();
  const bool is_whole = entries.num_rows == vocabulary_;
  if (context.recomputes_logits) {
    auto form = c10::make_intrusive<LossForm>();
    form->settings = context.loss;
    form->num_classes = vocabulary_;
    form->first_class = entries.first_row;
    if (!is_whole) form->ranks = context.sites->vocabulary;
    return head_loss_sum(norm_.forward(x), head_, context, some_of(rows), targets, form);
  }
  const at::Tensor part = logits(x, context, rows);
  if (is_whole) return cross_entropy_sum(part, targets, context.loss);
  return cross_entropy_sum(part, targets, entries.first_row, *context.sites->vocabulary, context.loss, vocabulary_);
}

}  // namespace weft
