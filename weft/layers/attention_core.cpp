#include "weft/layers/attention_core.h"

#include <cmath>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <torch/csrc/autograd/custom_function.h>

#include "weft/base/check.h"
#include "weft/layers/attention_block.h"
#include "weft/layers/device_attention.h"
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
  std::optional<BlockDropout> dropout;

  AttentionKernel kernel() const { return dropout ? AttentionKernel::kComposed : AttentionKernel::kFlash; }
  const BlockDropout* drops() const { return dropout ? &*dropout : nullptr; }
  double scale() const { return 1 / std::sqrt(static_cast<double>(heads.head_dim)); }
};

/// Queries and keys lie next to each other and turn alike.
at::Tensor turning_heads(const at::Tensor& qkv, const HeadCounts& h) {
  return qkv.view({qkv.size(0), h.heads + 2 * h.kv_heads, h.head_dim}).narrow(1, 0, h.heads + h.kv_heads);
}

AttentionBlock block_of(const SegmentRun& run, AttentionMask mask) {
  using Sees = AttentionBlock::Sees;
  const Range rows{run.begin, run.begin + run.length};
  AttentionBlock block{.queries = rows, .keys = rows, .count = run.count, .has_own_keys = true};
  if (mask.is_causal) block.sees = Sees::kCausal;
  if (mask.window > 0 && run.length > mask.window) {
    block.sees = Sees::kWindow;
    block.window = mask.window;
  }
  return block;
}

/// Where several queries share a key, a kernel call's batch is the key heads, and so it does one segment.
std::vector<AttentionBlock> blocks_of(const Core& core) {
  std::vector<AttentionBlock> blocks;
  for (const SegmentRun& run : core.segments.runs()) {
    if (core.heads.heads == core.heads.kv_heads) {
      blocks.push_back(block_of(run, core.mask));
      continue;
    }
    for (int64_t i = 0; i < run.count; ++i)
      blocks.push_back(block_of({.begin = run.begin + i * run.length, .length = run.length, .count = 1}, core.mask));
  }
  return blocks;
}

/// Of turned queries, keys and values.
AttentionState attend(const at::Tensor& qkv, const Core& core) {
  const AttentionParts parts = attention_parts(qkv, core.heads);
  // A row has one block: nothing is put together, so its output needs no more precision than the rows have.
  const at::TensorOptions wide = qkv.options().dtype(accumulation_type(qkv.scalar_type()));
  const AttentionState state{at::empty(parts.q.sizes(), qkv.options()),
                             at::empty({qkv.size(0), core.heads.heads}, wide)};
  for (const AttentionBlock& block : blocks_of(core))
    attend_block(parts, block, core.heads, state, core.kernel(), core.drops());
  return state;
}

struct BlockAttentionFunction : torch::autograd::Function<BlockAttentionFunction> {
  static at::Tensor forward(AutogradContext* saved, const at::Tensor& qkv, const c10::intrusive_ptr<Core>& core) {
    const HeadCounts& h = core->heads;
    if (core->rotary.is_defined()) rotate_(turning_heads(qkv, h), core->rotary);
    const AttentionState state = attend(qkv, *core);
    variable_list kept = {qkv};
    if (core->keeps == AttentionKeeps::kResults) kept.insert(kept.end(), {state.out, state.log_sums});
    saved->save_for_backward(kept);
    saved->saved_data["core"] = at::IValue::make_capsule(core);
    return state.out.view({qkv.size(0), h.heads * h.head_dim});
  }

  static variable_list backward(AutogradContext* saved, const variable_list& gradients) {
    const variable_list kept = saved->get_saved_variables();
    const auto core = c10::static_intrusive_pointer_cast<Core>(saved->saved_data["core"].toCapsule());
    const HeadCounts& h = core->heads;
    const at::Tensor& qkv = kept[0];
    const AttentionState state =
        core->keeps == AttentionKeeps::kNothing ? attend(qkv, *core) : AttentionState{kept[1], kept[2]};
    const at::Tensor dout = gradients[0].contiguous().view(state.out.sizes());
    const at::Tensor dqkv = at::empty_like(qkv);
    const AttentionParts parts = attention_parts(qkv, h);
    const AttentionParts dparts = attention_parts(dqkv, h);
    for (const AttentionBlock& block : blocks_of(*core))
      attend_block_backward(dout, parts, block, h, state, dparts, core->kernel(), core->drops());
    if (core->rotary.is_defined()) rotate_(turning_heads(dqkv, h), core->rotary, /*back=*/true);
    return {dqkv, at::Tensor()};
  }
};

/// Minus infinity where a row does not see another one; nothing where the causal mask alone does it.
c10::optional<at::Tensor> window_mask(AttentionMask mask, int64_t length, const at::TensorOptions& options) {
  const AttentionBlock block = block_of({.begin = 0, .length = length, .count = 1}, mask);
  return block.sees == AttentionBlock::Sees::kWindow ? hidden_keys(block, options) : c10::nullopt;
}

/// Of differentiable operators, for devices other than the CPU whose fused kernels do not take these rows.
at::Tensor composed_attention(const at::Tensor& qkv, const Core& core) {
  const HeadCounts& h = core.heads;
  AttentionParts parts = attention_parts(qkv, h);
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
                          const PackedSegments& segments, AttentionMask mask, AttentionKeeps keeps,
                          const std::optional<AttentionDropout>& dropout) {
  WEFT_CHECK(qkv.dim() == 2 && qkv.size(1) == heads.packed_width() && qkv.size(0) == segments.num_rows(),
             "attention of {} rows × {} with segments of {} rows and heads of width {}", qkv.size(0), qkv.size(1),
             segments.num_rows(), heads.packed_width());
  if (!dropout && qkv.size(0) > 0 && has_device_attention(qkv, heads))
    return device_attention(qkv, heads, rotary, segments, mask, keeps);
  auto core = c10::make_intrusive<Core>();
  core->heads = heads;
  core->rotary = rotary;
  core->segments = segments;
  core->mask = mask;
  core->keeps = keeps;
  if (dropout) {
    core->dropout = BlockDropout{.probability = dropout->probability,
                                 .key = dropout->key,
                                 .queries = dropout->rows,
                                 .keys = dropout->rows,
                                 .first_head = dropout->first_head};
  }
  if (qkv.size(0) == 0) return qkv.narrow(1, 0, heads.heads * heads.head_dim);
  // With dropout blocks are put together of operators that every device has.
  if (qkv.device().is_cpu() || dropout) return BlockAttentionFunction::apply(qkv, core);
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
