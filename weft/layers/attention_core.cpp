#include "weft/layers/attention_core.h"

#include <cmath>
#include <limits>

#include <ATen/TensorOperators.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include "weft/base/check.h"
#include "weft/layers/recompute.h"

namespace weft {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Core : torch::CustomClassHolder {
  HeadCounts heads;
  RotaryTable rotary;
  PackedSegments segments;
  AttentionMask mask;
  AttentionKeeps keeps = AttentionKeeps::kResults;

  double scale() const { return 1 / std::sqrt(static_cast<double>(heads.head_dim)); }
};

/// Queries, keys and values of packed rows, [rows, heads, head_dim] each.
struct Parts {
  at::Tensor q;
  at::Tensor k;
  at::Tensor v;
};

Parts parts_of(const at::Tensor& qkv, const HeadCounts& h) {
  const at::Tensor all = qkv.view({qkv.size(0), h.heads + 2 * h.kv_heads, h.head_dim});
  return {all.narrow(1, 0, h.heads), all.narrow(1, h.heads, h.kv_heads),
          all.narrow(1, h.heads + h.kv_heads, h.kv_heads)};
}

/// Queries and keys lie next to each other and turn alike.
at::Tensor turning_heads(const at::Tensor& qkv, const HeadCounts& h) {
  return qkv.view({qkv.size(0), h.heads + 2 * h.kv_heads, h.head_dim}).narrow(1, 0, h.heads + h.kv_heads);
}

/// What a kernel call works on, as [batch, heads, length, head_dim] views: either segments of one length are the batch,
/// or, where several queries share a key, the key heads of one segment are; no key is copied.
struct Piece {
  int64_t begin = 0;
  int64_t length = 0;
  int64_t count = 1;
  bool shares_keys = false;

  at::Tensor queries(const at::Tensor& x, const HeadCounts& h) const {
    const at::Tensor rows = x.narrow(0, begin, length * count);
    if (!shares_keys) return rows.unflatten(0, {count, length}).transpose(1, 2);
    return rows.unflatten(1, {h.kv_heads, h.heads / h.kv_heads}).permute({1, 2, 0, 3});
  }
  at::Tensor keys(const at::Tensor& x, const HeadCounts& h) const {
    const at::Tensor rows = x.narrow(0, begin, length * count);
    if (!shares_keys) return rows.unflatten(0, {count, length}).transpose(1, 2);
    return rows.transpose(0, 1).unsqueeze(1).expand({h.kv_heads, h.heads / h.kv_heads, length, h.head_dim});
  }
  /// Writes a kernel's gradient of the keys back to rows.
  void put_keys(const at::Tensor& gradient, const at::Tensor& x) const {
    const at::Tensor rows = x.narrow(0, begin, length * count);
    if (shares_keys) {
      rows.copy_(gradient.sum(1).transpose(0, 1));
    } else {
      rows.unflatten(0, {count, length}).copy_(gradient.transpose(1, 2));
    }
  }
};

std::vector<Piece> pieces_of(const PackedSegments& segments, const HeadCounts& h) {
  std::vector<Piece> pieces;
  for (const SegmentRun& run : segments.runs()) {
    if (h.heads == h.kv_heads) {
      pieces.push_back({.begin = run.begin, .length = run.length, .count = run.count});
      continue;
    }
    for (int64_t i = 0; i < run.count; ++i) {
      pieces.push_back({.begin = run.begin + i * run.length, .length = run.length, .shares_keys = true});
    }
  }
  return pieces;
}

/// Minus infinity where a row does not see another one; nothing where the causal mask alone does it.
c10::optional<at::Tensor> window_mask(AttentionMask mask, int64_t length, const at::TensorOptions& options) {
  if (mask.window == 0 || length <= mask.window) return c10::nullopt;
  const at::Tensor row = at::arange(length, options.dtype(at::kLong)).unsqueeze(1);
  const at::Tensor column = row.transpose(0, 1);
  const at::Tensor hidden = (column > row).logical_or_(column <= row - mask.window);
  return at::zeros({length, length}, options).masked_fill_(hidden, -std::numeric_limits<double>::infinity());
}

/// Of turned queries, keys and values: the output, [rows, heads, head_dim], then the log-sums of every piece.
variable_list attend(const at::Tensor& qkv, const Core& core) {
  const HeadCounts& h = core.heads;
  const Parts parts = parts_of(qkv, h);
  const at::Tensor out = at::empty({qkv.size(0), h.heads, h.head_dim}, qkv.options());
  variable_list results = {out};
  for (const Piece& piece : pieces_of(core.segments, h)) {
    const auto hidden = window_mask(core.mask, piece.length, qkv.options());
    auto [result, log_sums] = at::_scaled_dot_product_flash_attention_for_cpu(
        piece.queries(parts.q, h), piece.keys(parts.k, h), piece.keys(parts.v, h), /*dropout_p=*/0.0,
        core.mask.is_causal && !hidden, hidden, core.scale());
    piece.queries(out, h).copy_(result);
    results.push_back(log_sums);
  }
  return results;
}

struct CpuAttentionFunction : torch::autograd::Function<CpuAttentionFunction> {
  static at::Tensor forward(AutogradContext* saved, const at::Tensor& qkv, const c10::intrusive_ptr<Core>& core) {
    const HeadCounts& h = core->heads;
    if (core->rotary.is_defined()) rotate_(turning_heads(qkv, h), core->rotary);
    const variable_list results = attend(qkv, *core);
    variable_list kept = {qkv};
    if (core->keeps == AttentionKeeps::kResults) kept.insert(kept.end(), results.begin(), results.end());
    saved->save_for_backward(kept);
    saved->saved_data["core"] = at::IValue::make_capsule(core);
    return results.front().view({qkv.size(0), h.heads * h.head_dim});
  }

  static variable_list backward(AutogradContext* saved, const variable_list& gradients) {
    variable_list kept = saved->get_saved_variables();
    const auto core = c10::static_intrusive_pointer_cast<Core>(saved->saved_data["core"].toCapsule());
    const HeadCounts& h = core->heads;
    const at::Tensor qkv = kept[0];
    if (core->keeps == AttentionKeeps::kNothing) {
      const variable_list results = attend(qkv, *core);
      kept.insert(kept.end(), results.begin(), results.end());
    }
    const at::Tensor& out = kept[1];
    const at::Tensor dout = gradients[0].contiguous().view(out.sizes());
    const at::Tensor dqkv = at::empty_like(qkv);
    const Parts parts = parts_of(qkv, h);
    const Parts dparts = parts_of(dqkv, h);
    size_t index = 2;
    for (const Piece& piece : pieces_of(core->segments, h)) {
      const auto hidden = window_mask(core->mask, piece.length, qkv.options());
      auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
          piece.queries(dout, h), piece.queries(parts.q, h), piece.keys(parts.k, h), piece.keys(parts.v, h),
          piece.queries(out, h), kept[index++], /*dropout_p=*/0.0, core->mask.is_causal && !hidden, hidden,
          core->scale());
      piece.queries(dparts.q, h).copy_(dq);
      piece.put_keys(dk, dparts.k);
      piece.put_keys(dv, dparts.v);
    }
    if (core->rotary.is_defined()) rotate_(turning_heads(dqkv, h), core->rotary, /*back=*/true);
    return {dqkv, at::Tensor()};
  }
};

/// Of differentiable operators, for devices other than the CPU.
at::Tensor composed_attention(const at::Tensor& qkv, const Core& core) {
  const HeadCounts& h = core.heads;
  Parts parts = parts_of(qkv, h);
  if (core.rotary.is_defined()) {
    parts.q = rotated(parts.q, core.rotary);
    parts.k = rotated(parts.k, core.rotary);
  }
  std::vector<at::Tensor> results;
  for (const SegmentRun& run : core.segments.runs()) {
    const auto batch = [&](const at::Tensor& x) {
      return x.narrow(0, run.begin, run.length * run.count).unflatten(0, {run.count, run.length}).transpose(1, 2);
    };
    const auto hidden = window_mask(core.mask, run.length, qkv.options());
    const at::Tensor result = at::scaled_dot_product_attention(batch(parts.q), batch(parts.k), batch(parts.v), hidden,
                                                               0.0, core.mask.is_causal && !hidden, core.scale(),
                                                               /*enable_gqa=*/h.heads != h.kv_heads);
    results.push_back(result.transpose(1, 2).reshape({run.length * run.count, h.heads * h.head_dim}));
  }
  return results.size() == 1 ? results.front() : at::cat(results);
}

}  // namespace

at::Tensor attention_core(const at::Tensor& qkv, const HeadCounts& heads, const RotaryTable& rotary,
                          const PackedSegments& segments, AttentionMask mask, AttentionKeeps keeps) {
  WEFT_CHECK(qkv.dim() == 2 && qkv.size(1) == heads.packed_width() && qkv.size(0) == segments.num_rows(),
             "attention of {} rows × {} with segments of {} rows and heads of width {}", qkv.size(0), qkv.size(1),
             segments.num_rows(), heads.packed_width());
  auto core = c10::make_intrusive<Core>();
  core->heads = heads;
  core->rotary = rotary;
  core->segments = segments;
  core->mask = mask;
  core->keeps = keeps;
  if (qkv.size(0) == 0) return qkv.narrow(1, 0, heads.heads * heads.head_dim);
  if (qkv.device().is_cpu()) return CpuAttentionFunction::apply(qkv, core);
  if (keeps == AttentionKeeps::kResults) return composed_attention(qkv, *core);
  return recomputed([core](const at::Tensor& same) { return composed_attention(same, *core); }, qkv, qkv);
}

at::Tensor attention_with_past(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, AttentionMask mask) {
  const int64_t rows = q.size(0);
  const int64_t past = k.size(0) - rows;
  WEFT_CHECK(past == 0 || rows == 1, "attention of {} new rows after {}", rows, past);
  int64_t first = 0;
  if (rows == 1 && mask.window > 0) first = std::max<int64_t>(0, k.size(0) - mask.window);
  const auto batch = [&](const at::Tensor& x, int64_t from) {
    return x.narrow(0, from, x.size(0) - from).transpose(0, 1).unsqueeze(0);
  };
  const auto hidden = rows == 1 ? c10::nullopt : window_mask(mask, rows, q.options());
  const at::Tensor result = at::scaled_dot_product_attention(batch(q, 0), batch(k, first), batch(v, first), hidden, 0.0,
                                                             rows > 1 && mask.is_causal && !hidden, c10::nullopt,
                                                             /*enable_gqa=*/q.size(1) != k.size(1));
  return result.squeeze(0).transpose(0, 1).reshape({rows, q.size(1) * q.size(2)});
}

}  // namespace weft
