#include "weft/layers/device_attention.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <mutex>

#include <ATen/Context.h>
#include <ATen/ops/_flash_attention_backward.h>
#include <ATen/ops/_flash_attention_forward.h>
#include <ATen/ops/_fused_sdp_choice.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention_backward.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/tensor.h>
#include <torch/csrc/autograd/custom_function.h>

#include "weft/layers/attention_block.h"
#include "weft/layers/own_kernels.h"

namespace weft {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// LibTorch's number of cuDNN's kernels.
constexpr int64_t kCudnnChoice = 3;
/// cuDNN plans every shape anew, for tens of milliseconds, and is faster then: it is asked for shapes that have gone
/// through a module this often before.
constexpr int64_t kPassesBefore = 2;

struct DeviceCore : torch::CustomClassHolder {
  HeadCounts heads;
  RotaryTable rotary;
  PackedSegments segments;
  AttentionMask mask;
  AttentionKeeps keeps = AttentionKeeps::kResults;
  bool is_dense = false;  ///< all segments are of one length, and cuDNN does them

  double scale() const { return 1 / std::sqrt(static_cast<double>(heads.head_dim)); }
  int64_t longest() const {
    int64_t longest = 0;
    for (const SegmentRun& run : segments.runs()) longest = std::max(longest, run.length);
    return longest;
  }
  bool has_window() const { return mask.window > 0 && longest() > mask.window; }
};

/// What a kernel gives, and what its backward wants of it.
struct Attended {
  at::Tensor out;  ///< [rows, heads, head_dim]
  at::Tensor log_sums;
  at::Tensor seed;  ///< of dropout, which there is none of
  at::Tensor offset;
};

/// Has the same shape been through a module often enough? Counts. All layers of a pass read one table of angles, whose
/// first one counts the pass; without a table every layer counts.
bool is_frequent(const at::Tensor& qkv, const DeviceCore& core) {
  using Shape = std::array<int64_t, 7>;
  struct Use {
    int64_t passes = 0;
    std::optional<c10::weak_intrusive_ptr<c10::TensorImpl>> angles;
  };
  static std::mutex guard;
  static std::map<Shape, Use> seen;
  const SegmentRun& run = core.segments.runs().front();
  const Shape shape = {run.length,
                       run.count,
                       core.heads.heads,
                       core.heads.kv_heads,
                       core.heads.head_dim,
                       core.mask.is_causal,
                       static_cast<int64_t>(qkv.scalar_type())};
  const std::lock_guard lock(guard);
  Use& use = seen[shape];
  const bool has_table = core.rotary.is_defined();
  const bool is_same_pass = has_table && use.angles && use.angles->lock() == core.rotary.cos.getIntrusivePtr();
  if (!is_same_pass) ++use.passes;
  if (has_table) use.angles.emplace(core.rotary.cos.getIntrusivePtr());
  return use.passes > kPassesBefore;
}

/// Packed rows of equal segments as cuDNN takes them, views [segments, heads, length, head_dim].
at::Tensor dense_view(const at::Tensor& rows, const DeviceCore& core) {
  const SegmentRun& run = core.segments.runs().front();
  return rows.unflatten(0, {run.count, run.length}).transpose(1, 2);
}

bool wants_dense(const at::Tensor& qkv, const DeviceCore& core) {
  if (core.segments.runs().size() != 1 || core.has_window() || at::globalContext().deterministicAlgorithms())
    return false;
  if (!is_frequent(qkv, core)) return false;
  const AttentionParts parts = attention_parts(qkv, core.heads);
  const int64_t choice =
      at::_fused_sdp_choice(dense_view(parts.q, core), dense_view(parts.k, core), dense_view(parts.v, core), {}, 0.0,
                            core.mask.is_causal, core.scale(), core.heads.heads != core.heads.kv_heads);
  return choice == kCudnnChoice;
}

/// Where segments begin, and the end of the last, on the device. Layers ask for the same ones in turn.
at::Tensor segment_offsets(const PackedSegments& segments, at::Device device) {
  struct Kept {
    std::vector<int64_t> lengths;
    at::Tensor offsets;
  };
  struct Cache {
    std::mutex guard;
    std::array<Kept, 4> kept;
    size_t next = 0;
  };
  static Cache& cache = *new Cache;  // a GPU's memory must not outlive LibTorch's allocator, so it is never freed
  std::vector<int64_t> lengths = segments.lengths();
  const std::lock_guard lock(cache.guard);
  for (const Kept& one : cache.kept)
    if (one.offsets.defined() && one.offsets.device() == device && one.lengths == lengths) return one.offsets;
  std::vector<int32_t> offsets = {0};
  for (const int64_t length : lengths) offsets.push_back(offsets.back() + static_cast<int32_t>(length));
  Kept& place = cache.kept[cache.next++ % cache.kept.size()];
  // Nobody waits for so few numbers: they are copied before this returns.
  place = {std::move(lengths), at::tensor(offsets, at::kInt).to(device, /*non_blocking=*/true)};
  return place.offsets;
}

Attended attend(const at::Tensor& qkv, const DeviceCore& core) {
  const AttentionParts parts = attention_parts(qkv, core.heads);
  if (core.is_dense) {
    auto [out, log_sums, begin_q, begin_k, max_q, max_k, seed, offset, mask] = at::_scaled_dot_product_cudnn_attention(
        dense_view(parts.q, core), dense_view(parts.k, core), dense_view(parts.v, core), /*attn_bias=*/{},
        /*compute_log_sumexp=*/true, /*dropout_p=*/0.0, core.mask.is_causal, /*return_debug_mask=*/false, core.scale());
    return {out.transpose(1, 2).reshape(parts.q.sizes()), log_sums, seed, offset};
  }
  const at::Tensor offsets = segment_offsets(core.segments, qkv.device());
  const int64_t longest = core.longest();
  const auto back = core.has_window() ? std::optional<int64_t>(core.mask.window - 1) : std::nullopt;
  const auto ahead = core.has_window() ? std::optional<int64_t>(0) : std::nullopt;
  auto [out, log_sums, seed, offset, mask] = at::_flash_attention_forward(
      parts.q, parts.k, parts.v, offsets, offsets, longest, longest, /*dropout_p=*/0.0,
      core.mask.is_causal && !core.has_window(), /*return_debug_mask=*/false, core.scale(), back, ahead);
  return {out, log_sums, seed, offset};
}

struct Gradients {
  at::Tensor dq, dk, dv;  ///< [rows, heads, head_dim]
};

Gradients attend_backward(const at::Tensor& dout, const at::Tensor& qkv, const DeviceCore& core, const Attended& kept) {
  const AttentionParts parts = attention_parts(qkv, core.heads);
  if (core.is_dense) {
    const int64_t length = core.segments.runs().front().length;
    auto [dq, dk, dv] = at::_scaled_dot_product_cudnn_attention_backward(
        dense_view(dout, core), dense_view(parts.q, core), dense_view(parts.k, core), dense_view(parts.v, core),
        dense_view(kept.out, core), kept.log_sums, kept.seed, kept.offset, /*attn_bias=*/at::Tensor(), at::Tensor(),
        at::Tensor(), length, length, /*dropout_p=*/0.0, core.mask.is_causal, core.scale());
    const auto rows = [](const at::Tensor& x) { return x.transpose(1, 2).flatten(0, 1); };
    return {rows(dq), rows(dk), rows(dv)};
  }
  const at::Tensor offsets = segment_offsets(core.segments, qkv.device());
  const int64_t longest = core.longest();
  const auto back = core.has_window() ? std::optional<int64_t>(core.mask.window - 1) : std::nullopt;
  const auto ahead = core.has_window() ? std::optional<int64_t>(0) : std::nullopt;
  auto [dq, dk, dv] = at::_flash_attention_backward(
      dout, parts.q, parts.k, parts.v, kept.out, kept.log_sums, offsets, offsets, longest, longest, /*dropout_p=*/0.0,
      core.mask.is_causal && !core.has_window(), kept.seed, kept.offset, core.scale(), back, ahead);
  return {dq, dk, dv};
}

void turn(const at::Tensor& qkv, const DeviceCore& core, bool back) {
  const HeadCounts& h = core.heads;
  if (!core.rotary.is_defined()) return;
  rotate_(qkv.view({qkv.size(0), h.heads + 2 * h.kv_heads, h.head_dim}).narrow(1, 0, h.heads + h.kv_heads), core.rotary,
          back);
}

at::Tensor pack(const Gradients& gradients, const DeviceCore& core) {
  const bool has_table = core.rotary.is_defined();
  if (has_own_kernels(gradients.dq) && (!has_table || core.rotary.cos.scalar_type() == at::kFloat)) {
    return packed_gradients(gradients.dq, gradients.dk, gradients.dv, has_table ? core.rotary.cos : at::Tensor(),
                            has_table ? core.rotary.sin : at::Tensor());
  }
  const at::Tensor packed = at::cat({gradients.dq, gradients.dk, gradients.dv}, 1).flatten(1);
  turn(packed, core, /*back=*/true);
  return packed;
}

struct DeviceAttentionFunction : torch::autograd::Function<DeviceAttentionFunction> {
  static at::Tensor forward(AutogradContext* saved, const at::Tensor& qkv, const c10::intrusive_ptr<DeviceCore>& core) {
    turn(qkv, *core, /*back=*/false);
    const Attended attended = attend(qkv, *core);
    variable_list kept = {qkv};
    if (core->keeps == AttentionKeeps::kResults)
      kept.insert(kept.end(), {attended.out, attended.log_sums, attended.seed, attended.offset});
    saved->save_for_backward(kept);
    saved->saved_data["core"] = at::IValue::make_capsule(core);
    return attended.out.flatten(1);
  }

  static variable_list backward(AutogradContext* saved, const variable_list& gradients) {
    const variable_list kept = saved->get_saved_variables();
    const auto core = c10::static_intrusive_pointer_cast<DeviceCore>(saved->saved_data["core"].toCapsule());
    const at::Tensor& qkv = kept[0];
    const Attended attended =
        core->keeps == AttentionKeeps::kNothing ? attend(qkv, *core) : Attended{kept[1], kept[2], kept[3], kept[4]};
    const at::Tensor dout = gradients[0].contiguous().view(attended.out.sizes());
    return {pack(attend_backward(dout, qkv, *core, attended), *core), at::Tensor()};
  }
};

}  // namespace

bool has_device_attention(const at::Tensor& qkv, const HeadCounts& heads) {
  const bool is_half = qkv.scalar_type() == at::kBFloat16 || qkv.scalar_type() == at::kHalf;
  return qkv.is_cuda() && is_half && heads.head_dim % 8 == 0 && heads.head_dim <= 128;
}

at::Tensor device_attention(const at::Tensor& qkv, const HeadCounts& heads, const RotaryTable& rotary,
                            const PackedSegments& segments, AttentionMask mask, AttentionKeeps keeps) {
  auto core = c10::make_intrusive<DeviceCore>();
  core->heads = heads;
  core->rotary = rotary;
  core->segments = segments;
  core->mask = mask;
  core->keeps = keeps;
  core->is_dense = wants_dense(qkv, *core);
  return DeviceAttentionFunction::apply(qkv, core);
}

}  // namespace weft
