#include "weft/layers/context_attention.h"

#include <algorithm>

#include <torch/csrc/autograd/custom_function.h>

#include "weft/base/check.h"
#include "weft/layers/head_exchange.h"
#include "weft/layers/ring_attention.h"
#include "weft/mesh/context_blocks.h"

namespace weft {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Everything that one call's forward and backward do.
struct ContextCore : torch::CustomClassHolder {
  ContextCore(HeadExchange exchange_in, RingAttention ring_in)
      : exchange(std::move(exchange_in)), ring(std::move(ring_in)) {}

  HeadCounts heads;
  RotaryTable rotary;
  AttentionKeeps keeps = AttentionKeeps::kResults;
  HeadExchange exchange;
  RingAttention ring;

  at::Tensor as_heads(const at::Tensor& packed) const { return packed.unflatten(1, {-1, heads.head_dim}); }
  void turn(const at::Tensor& packed, bool back) const {
    if (rotary.is_defined()) rotate_(packed.narrow(1, 0, heads.heads + heads.kv_heads), rotary, back);
  }
  /// Of rows for heads: the output in the rows' own precision.
  AttentionState attend(const at::Tensor& shared) {
    AttentionState state = ring.forward(shared);
    state.out = state.out.to(shared.scalar_type());
    return state;
  }
};

struct ContextAttentionFunction : torch::autograd::Function<ContextAttentionFunction> {
  static at::Tensor forward(AutogradContext* saved, const at::Tensor& qkv,
                            const c10::intrusive_ptr<ContextCore>& core) {
    const at::Tensor packed = core->as_heads(qkv.detach());
    core->turn(packed, /*back=*/false);
    const at::Tensor shared = core->exchange.share_packed(packed);
    const AttentionState state = core->attend(shared);
    variable_list kept = {shared};
    if (core->keeps == AttentionKeeps::kResults) kept.insert(kept.end(), {state.out, state.log_sums});
    saved->save_for_backward(kept);
    saved->saved_data["core"] = at::IValue::make_capsule(core);
    return core->exchange.return_queries(state.out).flatten(1);
  }

  static variable_list backward(AutogradContext* saved, const variable_list& gradients) {
    const variable_list kept = saved->get_saved_variables();
    const auto core = c10::static_intrusive_pointer_cast<ContextCore>(saved->saved_data["core"].toCapsule());
    const at::Tensor& shared = kept[0];
    const AttentionState state =
        core->keeps == AttentionKeeps::kNothing ? core->attend(shared) : AttentionState{kept[1], kept[2]};
    const at::Tensor dout = core->exchange.share_queries(core->as_heads(gradients[0].contiguous()));
    const at::Tensor dpacked = core->exchange.return_packed(core->ring.backward(dout, shared, state));
    core->turn(dpacked, /*back=*/true);
    return {dpacked.flatten(1), at::Tensor()};
  }
};

PackedSegments local_segments(const std::vector<Range>& own, const PackedSegments& segments) {
  std::vector<int64_t> lengths;
  for (const SegmentPart& part : segment_parts(own, segments)) lengths.push_back(part.num_rows);
  return PackedSegments(lengths);
}

}  // namespace

at::Tensor context_attention(const at::Tensor& qkv, const HeadCounts& heads, const RotaryTable& rotary,
                             const PackedSegments& segments, AttentionMask mask, AttentionKeeps keeps,
                             const ContextRows& rows, const std::optional<AttentionDropout>& dropout) {
  const ContextGroups& groups = *rows.groups;
  const RowDeal& deal = rows.deal;
  WEFT_CHECK(deal.num_ranks() == groups.num_ranks && deal.num_rows() == segments.num_rows(),
             "{} rows on {} ranks, where segments have {} rows and there are {} ranks", deal.num_rows(),
             deal.num_ranks(), segments.num_rows(), groups.num_ranks);
  WEFT_CHECK(qkv.dim() == 2 && qkv.size(1) == heads.packed_width() && qkv.size(0) == deal.num_rows(groups.rank),
             "attention of {} rows × {} where the deal has {} rows and heads have width {}", qkv.size(0), qkv.size(1),
             deal.num_rows(groups.rank), heads.packed_width());
  const int64_t ulysses = groups.ulysses ? groups.ulysses->size() : 1;
  const UlyssesRows shared = ulysses_rows(deal, segments, ulysses, groups.rank);
  if (shared.is_local) {
    std::optional<AttentionDropout> own = dropout;
    if (own) own->rows = rows_in(own->rows, deal.ranges(groups.rank));
    return attention_core(qkv, heads, rotary, local_segments(deal.ranges(groups.rank), segments), mask, keeps, own);
  }
  HeadExchange exchange(groups.ulysses, heads, shared.neighbours);
  std::optional<AttentionDropout> of_heads = dropout;
  if (of_heads) of_heads->first_head += exchange.first_head();
  RingAttention ring(groups.ring, exchange.heads(), shared.in_ring, segments, mask, of_heads);
  auto core = c10::make_intrusive<ContextCore>(std::move(exchange), std::move(ring));
  core->heads = heads;
  core->rotary = rotary;
  core->keeps = keeps;
  return ContextAttentionFunction::apply(qkv, core);
}

}  // namespace weft
