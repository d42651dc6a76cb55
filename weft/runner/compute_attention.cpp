#include <cmath>
#include <limits>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/zeros.h>

#include "weft/base/check.h"
#include "weft/runner/local_operator.h"

namespace weft {
namespace {

/// Whether a query at a place sees a key at another, [queries, keys].
at::Tensor seen_keys(const Attention& attention, const at::Tensor& queries, const at::Tensor& keys) {
  const at::Tensor q = queries.unsqueeze(1), k = keys.unsqueeze(0);
  switch (attention.mask) {
    case Mask::kFull:
      return at::ones({queries.size(0), keys.size(0)}, queries.options().dtype(at::kBool));
    case Mask::kCausal:
      return q >= k;
    case Mask::kSliding:
      return (q >= k).logical_and(q - k < attention.window);
    case Mask::kWindowed:
      return q.div(attention.window, "floor") == k.div(attention.window, "floor");
  }
  WEFT_CHECK(false, "a mask without a rule");
}

/// Attention of [batch, heads, rows, head_dim], of keys and values that all heads of a batch share.
at::Tensor attend(const Attention& attention, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                  Range queries, Range keys) {
  const auto shared = [&](const at::Tensor& x) { return x.expand({x.size(0), q.size(1), x.size(2), x.size(3)}); };
  const bool has_all = queries == keys;
  if (has_all && (attention.mask == Mask::kFull || attention.mask == Mask::kCausal))
    return at::scaled_dot_product_attention(q, shared(k), shared(v), {}, 0, attention.mask == Mask::kCausal);
  const auto places = [&](Range range) {
    return at::arange(range.begin, range.end, at::TensorOptions(at::kLong).device(q.device()));
  };
  return at::scaled_dot_product_attention(q, shared(k), shared(v), seen_keys(attention, places(queries), places(keys)));
}

}  // namespace

at::Tensor LocalOperator::compute_attention(const at::Tensor& x, const Call& call) const {
  const Attention& a = op().attention;
  const int64_t num_queries = a.heads / a.kv_heads;
  const at::Tensor groups = x.unflatten(-1, {-1, num_queries + 2, a.head_dim});
  const at::Tensor q = groups.narrow(-2, 0, num_queries);
  at::Tensor keys = groups.narrow(-2, num_queries, 2);
  const auto rows_dim = static_cast<size_t>(x.dim() - 2);
  const Range own = call.place.operands[0][rows_dim];
  Range all = own;
  if (keys_) {
    const at::Tensor sent = keys.flatten(-3).contiguous();
    const at::Tensor leaf = call.place.gather_keys->run(sent.detach()).detach().set_requires_grad(sent.requires_grad());
    if (sent.requires_grad())
      call.graph.joins.push_back({.sent = sent, .leaf = leaf, .back = [place = &call.place](const at::Tensor& slope) {
                                    return place->return_keys->run(slope.contiguous());
                                  }});
    keys = leaf.unflatten(-1, {-1, 2, a.head_dim});
    all = {0, call.place.shapes[0][rows_dim]};
  }
  if (x.numel() == 0) return at::zeros(call.place.result_shape, x.options());
  // [rows before, rows, groups, heads, head_dim] to a batch of groups.
  const auto batch = [](const at::Tensor& heads) {
    const at::Tensor flat = heads.dim() == 4 ? heads.unsqueeze(0) : heads.flatten(0, heads.dim() - 5);
    return flat.permute({0, 2, 3, 1, 4}).flatten(0, 1);
  };
  const at::Tensor mixed = attend(a, batch(q), batch(keys.narrow(-2, 0, 1)), batch(keys.narrow(-2, 1, 1)), own, all);
  const int64_t num_groups = q.size(-3);
  return mixed.unflatten(0, {-1, num_groups}).permute({0, 3, 1, 2, 4}).reshape(call.place.result_shape);
}

}  // namespace weft
