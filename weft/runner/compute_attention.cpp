#include <algorithm>
#include <cmath>
#include <limits>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include "weft/base/check.h"
#include "weft/layers/attention_core.h"
#include "weft/layers/context_attention.h"
#include "weft/program/attends.h"
#include "weft/runner/group_attention.h"
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

/// Attention of [batch, heads, rows, head_dim], of keys and values for every head or one for all heads of a batch.
at::Tensor attend(const Attention& attention, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                  Range queries, Range keys) {
  const auto shared = [&](const at::Tensor& x) {
    return x.size(1) == q.size(1) ? x : x.expand({x.size(0), q.size(1), x.size(2), x.size(3)});
  };
  if (attention.mask == Mask::kFull || (attention.mask == Mask::kCausal && queries == keys))
    return at::scaled_dot_product_attention(q, shared(k), shared(v), {}, 0, attention.mask == Mask::kCausal);
  const auto places = [&](Range range) {
    return at::arange(range.begin, range.end, at::TensorOptions(at::kLong).device(q.device()));
  };
  return at::scaled_dot_product_attention(q, shared(k), shared(v), seen_keys(attention, places(queries), places(keys)));
}

/// The same of heads [..., rows, groups, heads, head_dim], some of whose weights between rows are dropped: LibTorch
/// draws in an order that depends on the part. [samples, rows, heads, head_dim].
at::Tensor attend_with_dropout(const Attention& attention, const BlockDropout& dropout, const at::Tensor& q,
                               const at::Tensor& k, const at::Tensor& v, Range queries, Range keys) {
  const auto heads_of = [&](const at::Tensor& x) {
    const at::Tensor samples = x.dim() == 4 ? x.unsqueeze(0) : x.flatten(0, x.dim() - 5);
    return samples.expand({-1, -1, -1, q.size(-2), -1}).permute({0, 2, 3, 1, 4}).flatten(1, 2);
  };
  const at::Tensor own = heads_of(q);
  at::Tensor scores = own.matmul(heads_of(k).transpose(-1, -2)) / std::sqrt(static_cast<double>(attention.head_dim));
  const at::TensorOptions places = at::TensorOptions(at::kLong).device(q.device());
  const at::Tensor is_seen =
      seen_keys(attention, at::arange(queries.begin, queries.end, places), at::arange(keys.begin, keys.end, places));
  scores = scores.masked_fill(is_seen.logical_not(), -std::numeric_limits<double>::infinity());
  const at::Tensor factors =
      attention_factors(dropout, dropout.queries, dropout.keys, own.size(0), own.size(1), scores.options());
  return (at::softmax(scores, -1) * factors).matmul(heads_of(v)).transpose(1, 2);
}

/// Packed groups of queries, a key and a value become all queries, then all keys, then all values; rows of two dims.
struct HeadsApartFunction : torch::autograd::Function<HeadsApartFunction> {
  static at::Tensor forward(torch::autograd::AutogradContext* saved, const at::Tensor& rows, int64_t queries,
                            int64_t head_dim) {
    saved->saved_data["queries"] = queries;
    saved->saved_data["head_dim"] = head_dim;
    const at::Tensor result = at::empty(rows.sizes(), rows.options());
    for_each_kind(rows, result, queries, head_dim,
                  [](const at::Tensor& in_groups, const at::Tensor& apart) { apart.copy_(in_groups); });
    return result;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* saved,
                                                 const torch::autograd::variable_list& gradients) {
    const at::Tensor result = at::empty(gradients[0].sizes(), gradients[0].options());
    for_each_kind(result, gradients[0], saved->saved_data["queries"].toInt(), saved->saved_data["head_dim"].toInt(),
                  [](const at::Tensor& in_groups, const at::Tensor& apart) { in_groups.copy_(apart); });
    return {result, at::Tensor(), at::Tensor()};
  }

  /// Queries, keys and values as views of both, [rows, groups, heads, head_dim].
  template <typename Copy>
  static void for_each_kind(const at::Tensor& grouped, const at::Tensor& apart, int64_t queries, int64_t head_dim,
                            Copy copy) {
    const at::Tensor groups = grouped.unflatten(1, {-1, queries + 2, head_dim});
    int64_t begin = 0, column = 0;
    for (const int64_t heads : {queries, int64_t{1}, int64_t{1}}) {
      const int64_t width = groups.size(1) * heads * head_dim;
      copy(groups.narrow(2, begin, heads), apart.narrow(1, column, width).unflatten(1, {-1, heads, head_dim}));
      begin += heads;
      column += width;
    }
  }
};

/// Heads [..., rows, groups, heads, head_dim] as a kernel takes them: a batch of samples where a group has one head,
/// and otherwise of groups, which share keys. Only the second makes a copy, and not of one sample.
at::Tensor batch_of(const at::Tensor& heads, bool is_of_samples) {
  const at::Tensor samples = heads.dim() == 4 ? heads.unsqueeze(0) : heads.flatten(0, heads.dim() - 5);
  if (is_of_samples) return samples.squeeze(3).transpose(1, 2);
  if (samples.size(0) == 1) return samples.squeeze(0).permute({1, 2, 0, 3});
  return samples.permute({0, 2, 3, 1, 4}).flatten(0, 1);
}

/// The number of the first query head that is here.
int64_t first_head_of(const Attention& a, const LocalOperator::Call& call) {
  const int64_t queries = a.heads / a.kv_heads;
  return call.place.operands[0].back().begin / ((queries + 2) * a.head_dim) * queries;
}

/// Keys and values of all rows, of those that this rank sends.
at::Tensor gathered_keys(const at::Tensor& sent, const LocalOperator::Call& call) {
  return call.graph.add_join(
      sent, call.place.gather_keys->run(sent.detach()),
      [place = &call.place](const at::Tensor& slope) { return place->return_keys->run(slope.contiguous()); });
}

}  // namespace

at::Tensor LocalOperator::compute_attention(const at::Tensor& x, const Call& call) const {
  const Attention& a = op().attention;
  const int64_t num_queries = a.heads / a.kv_heads;
  WEFT_CHECK(call.context == nullptr || !keys_, "{} has some rows of a sequence of which other ranks have others",
             op().name);
  const bool attends = weft::attends({x.sizes().data(), x.sizes().size()}, call.context != nullptr);
  if (!keys_ && call.segments != nullptr && attends) return attend_whole_segments(x, call);
  const at::Tensor groups = x.unflatten(-1, {-1, num_queries + 2, a.head_dim});
  const auto rows_dim = static_cast<size_t>(x.dim() - 2);
  const Range own = call.place.operands[0][rows_dim];
  Range all = own;
  at::Tensor q, k, v;
  if (keys_) {
    const std::vector<at::Tensor> parts = groups.split_with_sizes({num_queries, 2}, -2);
    q = parts[0];
    const std::vector<at::Tensor> keys =
        gathered_keys(parts[1].flatten(-3).contiguous(), call).unflatten(-1, {-1, 2, a.head_dim}).split(1, -2);
    k = keys[0], v = keys[1];
    all = {0, call.place.shapes[0][rows_dim]};
  } else {
    const std::vector<at::Tensor> parts = groups.split_with_sizes({num_queries, 1, 1}, -2);
    q = parts[0], k = parts[1], v = parts[2];
  }
  if (!attends) return at::zeros(call.place.result_shape, x.options());
  if (call.segments != nullptr) return attend_segments(q, k, v, own, call).reshape(call.place.result_shape);
  if (a.dropout > 0 && call.draws.drops) {
    const at::Tensor samples = numbers_of(rows_dim, call);
    const auto numbers = [&](Range rows) {
      return (samples.unsqueeze(1) * (int64_t{1} << 32) + at::arange(rows.begin, rows.end, at::kLong)).flatten();
    };
    const BlockDropout dropout{.probability = a.dropout,
                               .key = dropout_key_of(call.draws),
                               .queries = numbers(own),
                               .keys = numbers(all),
                               .first_head = first_head_of(a, call)};
    return attend_with_dropout(a, dropout, q, k, v, own, all).reshape(call.place.result_shape);
  }
  if (!keys_ && own == Range{0, call.place.shapes[0][rows_dim]} && has_group_attention(x, a))
    return group_attention(x, a).view(call.place.result_shape);
  const bool is_of_samples = num_queries == 1;
  const at::Tensor mixed =
      attend(a, batch_of(q, is_of_samples), batch_of(k, is_of_samples), batch_of(v, is_of_samples), own, all);
  if (is_of_samples) return mixed.transpose(1, 2).reshape(call.place.result_shape);
  return mixed.unflatten(0, {-1, q.size(-3)}).permute({0, 3, 1, 2, 4}).reshape(call.place.result_shape);
}

at::Tensor LocalOperator::attend_whole_segments(const at::Tensor& x, const Call& call) const {
  const Attention& a = op().attention;
  const int64_t num_queries = a.heads / a.kv_heads, groups = x.size(-1) / ((num_queries + 2) * a.head_dim);
  const HeadCounts heads{.heads = groups * num_queries, .kv_heads = groups, .head_dim = a.head_dim};
  const at::Tensor rows = x.reshape({-1, x.size(-1)});
  // As layers have them: all queries, then keys, then values. One group is that already.
  const at::Tensor packed = groups == 1 ? rows : HeadsApartFunction::apply(rows, num_queries, a.head_dim);
  const AttentionMask mask{.is_causal = a.mask == Mask::kCausal || a.mask == Mask::kSliding,
                           .window = a.mask == Mask::kSliding ? a.window : 0};
  std::optional<AttentionDropout> dropout;
  if (a.dropout > 0 && call.draws.drops && call.draws.layer)
    dropout = {.probability = a.dropout,
               .key = dropout_key_of(call.draws),
               .rows = call.draws.layer->attended,
               .first_head = first_head_of(a, call)};
  const at::Tensor mixed =
      call.context != nullptr
          ? context_attention(packed, heads, {}, *call.segments, mask, AttentionKeeps::kResults, *call.context, dropout)
          : attention_core(packed, heads, {}, *call.segments, mask, AttentionKeeps::kResults, dropout);
  return mixed.reshape(call.place.result_shape);
}

at::Tensor LocalOperator::attend_segments(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, Range own,
                                          const Call& call) const {
  Attention a = op().attention;
  if (a.mask == Mask::kWindowed) a.mask = Mask::kFull;  // the segments are the windows
  const int64_t rows_dim = q.dim() - 4, num_queries = q.size(-2), groups = q.size(-3);
  const bool drops = a.dropout > 0 && call.draws.drops && call.draws.layer;
  const DropoutKey key = drops ? dropout_key_of(call.draws) : DropoutKey{};
  const int64_t first_head = first_head_of(a, call);
  std::vector<at::Tensor> results;
  for (const SegmentRun& run : call.segments->runs()) {
    for (int64_t i = 0; i < run.count; ++i) {
      const int64_t begin = run.begin + i * run.length, end = begin + run.length;
      const Range mine{std::max(begin, own.begin), std::min(end, own.end)};
      if (mine.begin >= mine.end) continue;
      const at::Tensor queries = q.narrow(rows_dim, mine.begin - own.begin, mine.size());
      const at::Tensor keys = k.narrow(rows_dim, begin, run.length), values = v.narrow(rows_dim, begin, run.length);
      const Range in_segment{mine.begin - begin, mine.end - begin}, all{0, run.length};
      at::Tensor mixed;
      if (drops) {
        const at::Tensor& numbers = call.draws.layer->attended;
        const BlockDropout dropout{.probability = a.dropout,
                                   .key = key,
                                   .queries = numbers.narrow(0, mine.begin, mine.size()),
                                   .keys = numbers.narrow(0, begin, run.length),
                                   .first_head = first_head};
        mixed = attend_with_dropout(a, dropout, queries, keys, values, in_segment, all);
      } else {
        mixed = attend(a, batch_of(queries, false), batch_of(keys, false), batch_of(values, false), in_segment, all);
        mixed = mixed.permute({2, 0, 1, 3});
      }
      results.push_back(mixed.reshape({mine.size(), groups * num_queries * a.head_dim}));
    }
  }
  return at::cat(results);
}

}  // namespace weft
