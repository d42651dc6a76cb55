#include "weft/layers/attention_block.h"

#include <cmath>
#include <limits>
#include <optional>
#include <tuple>

#include <ATen/TensorOperators.h>
#include <ATen/ops/_flash_attention_backward.h>
#include <ATen/ops/_flash_attention_forward.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/logaddexp.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/zeros.h>

#include "weft/base/check.h"
#include "weft/layers/device_attention.h"

namespace weft {
namespace {

/// A block's rows as kernels want them, [batch, heads, length, head_dim] views: the blocks of one size are the batch,
/// or, where several queries share a key, the key heads of one block are; no key is copied.
class BlockViews {
 public:
  BlockViews(const AttentionBlock& block, const HeadCounts& h) : block_(block), h_(h) {}

  at::Tensor queries(const at::Tensor& x) const {
    const at::Tensor rows = rows_of(x, block_.queries);
    if (!shares_keys()) return batch_of(rows, block_.queries);
    return rows.unflatten(1, {h_.kv_heads, h_.heads / h_.kv_heads}).permute({1, 2, 0, 3});
  }
  at::Tensor keys(const at::Tensor& x) const {
    const at::Tensor rows = rows_of(x, block_.keys);
    if (!shares_keys()) return batch_of(rows, block_.keys);
    return rows.transpose(0, 1).unsqueeze(1).expand({h_.kv_heads, h_.heads / h_.kv_heads, rows.size(0), h_.head_dim});
  }
  /// What weights are multiplied with, as [batch, heads, queries, keys].
  at::Tensor factors(const BlockDropout& dropout, const at::TensorOptions& options) const {
    const auto numbers = [&](const at::Tensor& rows, Range range) {
      return rows.narrow(0, range.begin, range.size() * block_.count);
    };
    const at::Tensor drawn = attention_factors(dropout, numbers(dropout.queries, block_.queries),
                                               numbers(dropout.keys, block_.keys), block_.count, h_.heads, options);
    return shares_keys() ? drawn.squeeze(0).unflatten(0, {h_.kv_heads, h_.heads / h_.kv_heads}) : drawn;
  }
  at::Tensor log_sums(const at::Tensor& x) const { return queries(x.unsqueeze(2)).squeeze(3); }

  void put_queries(const at::Tensor& gradient, const at::Tensor& x) const { put(gradient, queries(x)); }
  void put_keys(const at::Tensor& gradient, const at::Tensor& x) const {
    const at::Tensor rows = rows_of(x, block_.keys);
    if (shares_keys()) {
      put(gradient.sum(1).transpose(0, 1), rows);
    } else {
      put(gradient, batch_of(rows, block_.keys));
    }
  }

 private:
  void put(const at::Tensor& from, const at::Tensor& to) const {
    if (block_.has_own_keys) {
      to.copy_(from);
    } else {
      to.add_(from);
    }
  }
  bool shares_keys() const { return h_.heads != h_.kv_heads; }
  at::Tensor rows_of(const at::Tensor& x, Range range) const {
    return x.narrow(0, range.begin, range.size() * block_.count);
  }
  at::Tensor batch_of(const at::Tensor& rows, Range range) const {
    return rows.unflatten(0, {block_.count, range.size()}).transpose(1, 2);
  }

  const AttentionBlock& block_;
  const HeadCounts& h_;
};

double scale_of(const HeadCounts& h) {
  return 1 / std::sqrt(static_cast<double>(h.head_dim));
}

struct BlockResult {
  at::Tensor out;
  at::Tensor log_sums;
};

/// The flash kernel hides what comes later itself.
c10::optional<at::Tensor> hidden_window(const AttentionBlock& block, const at::TensorOptions& options) {
  return block.sees == AttentionBlock::Sees::kWindow ? hidden_keys(block, options) : c10::nullopt;
}

BlockResult flash(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionBlock& block,
                  double scale, const at::Tensor& /*factors*/) {
  const bool is_causal = block.sees == AttentionBlock::Sees::kCausal;
  auto [out, log_sums] = at::_scaled_dot_product_flash_attention_for_cpu(q, k, v, /*dropout_p=*/0.0, is_causal,
                                                                         hidden_window(block, q.options()), scale);
  return {out, log_sums};
}

at::Tensor composed_scores(const at::Tensor& q, const at::Tensor& k, const AttentionBlock& block, double scale) {
  const at::Tensor scores = at::matmul(q, k.transpose(2, 3)).to(accumulation_type(q.scalar_type())).mul_(scale);
  const auto hidden = hidden_keys(block, scores.options());
  if (hidden) scores.add_(*hidden);
  return scores;
}

BlockResult composed(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionBlock& block,
                     double scale, const at::Tensor& factors) {
  const at::Tensor scores = composed_scores(q, k, block, scale);
  const at::Tensor log_sums = at::logsumexp(scores, {3});
  const at::Tensor weights = scores.sub_(log_sums.unsqueeze(3)).exp_();
  if (factors.defined()) weights.mul_(factors);
  return {at::matmul(weights.to(v.scalar_type()), v), log_sums};
}

struct BlockInput {
  at::Tensor dout, q, k, v, out, log_sums;
  at::Tensor factors;  ///< of dropout; undefined: 1
};

std::tuple<at::Tensor, at::Tensor, at::Tensor> flash_backward(const BlockInput& in, const AttentionBlock& block,
                                                              double scale) {
  return at::_scaled_dot_product_flash_attention_for_cpu_backward(
      in.dout, in.q, in.k, in.v, in.out, in.log_sums, /*dropout_p=*/0.0, block.sees == AttentionBlock::Sees::kCausal,
      hidden_window(block, in.q.options()), scale);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> composed_backward(const BlockInput& in, const AttentionBlock& block,
                                                                 double scale) {
  const at::ScalarType type = in.q.scalar_type();
  const at::Tensor weights = composed_scores(in.q, in.k, block, scale).sub_(in.log_sums.unsqueeze(3)).exp_();
  const at::ScalarType wide = weights.scalar_type();
  const at::Tensor kept = in.factors.defined() ? weights * in.factors : weights;
  const at::Tensor dv = at::matmul(kept.to(type).transpose(2, 3), in.dout);
  const at::Tensor dots = (in.dout.to(wide) * in.out.to(wide)).sum(3, /*keepdim=*/true);
  const at::Tensor dkept = at::matmul(in.dout, in.v.transpose(2, 3)).to(wide);
  if (in.factors.defined()) dkept.mul_(in.factors);
  const at::Tensor dscores = dkept.sub_(dots).mul_(weights).mul_(scale).to(type);
  return {at::matmul(dscores, in.k), at::matmul(dscores.transpose(2, 3), in.q), dv};
}

/// Puts what a block gave together with what its queries have so far. The tensors are views of one order of dims.
void add_result(const AttentionBlock& block, const BlockResult& result, const at::Tensor& out,
                const at::Tensor& log_sums) {
  if (block.has_own_keys) {
    out.copy_(result.out);
    log_sums.copy_(result.log_sums);
    return;
  }
  const at::Tensor together = at::logaddexp(log_sums, result.log_sums);
  out.mul_((log_sums - together).exp_().unsqueeze(3));
  out.addcmul_(result.out.to(out.scalar_type()), (result.log_sums - together).exp_().unsqueeze(3));
  log_sums.copy_(together);
}

/// How far back and ahead a query sees, where keys end with the last query: as a GPU's kernels say what is hidden.
/// Nothing: they cannot say it.
struct DeviceWindow {
  bool is_causal = false;
  std::optional<int64_t> back;
  std::optional<int64_t> ahead;
};
std::optional<DeviceWindow> device_window(const AttentionBlock& block) {
  const int64_t more_keys = block.keys.size() - block.queries.size();
  switch (block.sees) {
    case AttentionBlock::Sees::kAll:
      return DeviceWindow{};
    case AttentionBlock::Sees::kCausal:
      return more_keys == 0 ? std::optional(DeviceWindow{.is_causal = true}) : std::nullopt;
    case AttentionBlock::Sees::kWindow: {
      const int64_t ahead = block.offset - more_keys, back = block.window - 1 - ahead;
      if (ahead < 0 || back < 0) return std::nullopt;
      return DeviceWindow{.is_causal = false, .back = back, .ahead = ahead};
    }
  }
  return std::nullopt;
}

/// The block's rows of a range as a GPU's kernels take them, [blocks, length, ...].
at::Tensor range_view(const at::Tensor& x, const AttentionBlock& block, Range range) {
  return x.narrow(0, range.begin, range.size() * block.count).unflatten(0, {block.count, range.size()});
}
at::Tensor rows_view(const at::Tensor& x, const AttentionBlock& block) {
  return range_view(x, block, block.queries);
}

BlockResult device_attend_block(const AttentionParts& parts, const AttentionBlock& block, const DeviceWindow& window,
                                double scale) {
  auto [out, log_sums, seed, offset, mask] = at::_flash_attention_forward(
      rows_view(parts.q, block), range_view(parts.k, block, block.keys), range_view(parts.v, block, block.keys), {}, {},
      block.queries.size(), block.keys.size(), /*dropout_p=*/0.0, window.is_causal, /*return_debug_mask=*/false, scale,
      window.back, window.ahead);
  // A query that sees no key has nothing to add.
  const double infinite = std::numeric_limits<double>::infinity();
  return {out, log_sums.transpose(1, 2).masked_fill(log_sums.transpose(1, 2).eq(infinite), -infinite)};
}

void device_attend_block_backward(const at::Tensor& dout, const AttentionParts& parts, const AttentionBlock& block,
                                  const DeviceWindow& window, double scale, const AttentionState& state,
                                  const AttentionParts& gradients) {
  const at::Tensor q = rows_view(parts.q, block), none = at::empty({2}, q.options().dtype(at::kLong));
  const auto [dq, dk, dv] = at::_flash_attention_backward(
      rows_view(dout, block), q, range_view(parts.k, block, block.keys), range_view(parts.v, block, block.keys),
      rows_view(state.out, block), rows_view(state.log_sums, block).transpose(1, 2).contiguous(), at::Tensor(),
      at::Tensor(), block.queries.size(), block.keys.size(), /*dropout_p=*/0.0, window.is_causal, none, none, scale,
      window.back, window.ahead);
  const auto put = [&](const at::Tensor& from, const at::Tensor& to) {
    if (block.has_own_keys)
      to.copy_(from);
    else
      to.add_(from);
  };
  put(dq, rows_view(gradients.q, block));
  put(dk, range_view(gradients.k, block, block.keys));
  put(dv, range_view(gradients.v, block, block.keys));
}

at::Tensor factors_of(const BlockViews& views, const at::Tensor& q, AttentionKernel kernel,
                      const BlockDropout* dropout) {
  if (dropout == nullptr) return {};
  WEFT_CHECK(kernel == AttentionKernel::kComposed, "a fused kernel drops nothing");
  return views.factors(*dropout, q.options().dtype(accumulation_type(q.scalar_type())));
}

}  // namespace

c10::optional<at::Tensor> hidden_keys(const AttentionBlock& block, const at::TensorOptions& options) {
  if (block.sees == AttentionBlock::Sees::kAll) return c10::nullopt;
  const at::TensorOptions whole = options.dtype(at::kLong);
  const at::Tensor query = at::arange(block.offset, block.offset + block.queries.size(), whole).unsqueeze(1);
  const at::Tensor key = at::arange(block.keys.size(), whole).unsqueeze(0);
  at::Tensor hidden = key > query;
  if (block.sees == AttentionBlock::Sees::kWindow) hidden.logical_or_(key <= query - block.window);
  return at::zeros({block.queries.size(), block.keys.size()}, options)
      .masked_fill_(hidden, -std::numeric_limits<double>::infinity());
}

AttentionParts attention_parts(const at::Tensor& qkv, const HeadCounts& h) {
  const at::Tensor all = qkv.view({qkv.size(0), h.heads + 2 * h.kv_heads, h.head_dim});
  return {all.narrow(1, 0, h.heads), all.narrow(1, h.heads, h.kv_heads),
          all.narrow(1, h.heads + h.kv_heads, h.kv_heads)};
}

at::ScalarType accumulation_type(at::ScalarType type) {
  return type == at::kDouble ? at::kDouble : at::kFloat;
}

AttentionState empty_state(const at::Tensor& q) {
  const at::TensorOptions options = q.options().dtype(accumulation_type(q.scalar_type()));
  return {at::empty(q.sizes(), options), at::empty({q.size(0), q.size(1)}, options)};
}

AttentionKernel kernel_for(const at::Tensor& q, const HeadCounts& heads) {
  if (q.is_cpu()) return AttentionKernel::kFlash;
  return has_device_attention(q, heads) ? AttentionKernel::kDevice : AttentionKernel::kComposed;
}

void attend_block(const AttentionParts& parts, const AttentionBlock& block, const HeadCounts& heads,
                  const AttentionState& state, AttentionKernel kernel, const BlockDropout* dropout) {
  const BlockViews views(block, heads);
  if (kernel == AttentionKernel::kDevice) {
    if (const auto window = device_window(block)) {
      return add_result(block, device_attend_block(parts, block, *window, scale_of(heads)), rows_view(state.out, block),
                        rows_view(state.log_sums, block));
    }
    kernel = AttentionKernel::kComposed;
  }
  const auto attend = kernel == AttentionKernel::kFlash ? flash : composed;
  const BlockResult result = attend(views.queries(parts.q), views.keys(parts.k), views.keys(parts.v), block,
                                    scale_of(heads), factors_of(views, parts.q, kernel, dropout));
  add_result(block, result, views.queries(state.out), views.log_sums(state.log_sums));
}

void attend_block_backward(const at::Tensor& dout, const AttentionParts& parts, const AttentionBlock& block,
                           const HeadCounts& heads, const AttentionState& state, const AttentionParts& gradients,
                           AttentionKernel kernel, const BlockDropout* dropout) {
  const BlockViews views(block, heads);
  if (kernel == AttentionKernel::kDevice) {
    if (const auto window = device_window(block))
      return device_attend_block_backward(dout, parts, block, *window, scale_of(heads), state, gradients);
    kernel = AttentionKernel::kComposed;
  }
  const BlockInput in{.dout = views.queries(dout),
                      .q = views.queries(parts.q),
                      .k = views.keys(parts.k),
                      .v = views.keys(parts.v),
                      .out = views.queries(state.out),
                      .log_sums = views.log_sums(state.log_sums),
                      .factors = factors_of(views, parts.q, kernel, dropout)};
  const auto backward = kernel == AttentionKernel::kFlash ? flash_backward : composed_backward;
  const auto [dq, dk, dv] = backward(in, block, scale_of(heads));
  views.put_queries(dq, gradients.q);
  views.put_keys(dk, gradients.k);
  views.put_keys(dv, gradients.v);
}

}  // namespace weft
