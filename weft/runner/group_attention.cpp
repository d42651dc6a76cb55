#include "weft/runner/group_attention.h"

#include <cmath>

#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>

namespace weft {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Heads : torch::CustomClassHolder {
  int64_t queries = 1;  ///< of a group
  int64_t head_dim = 0;
  bool is_causal = false;

  double scale() const { return 1 / std::sqrt(static_cast<double>(head_dim)); }
};

/// One sample's heads as the kernel takes them, views of packed rows: a batch of groups.
struct GroupViews {
  at::Tensor q, k, v;  ///< [groups, queries, rows, head_dim], [groups, rows, head_dim] of the others

  GroupViews(const at::Tensor& sample, const Heads& heads) {
    const at::Tensor all = sample.unflatten(-1, {-1, heads.queries + 2, heads.head_dim}).permute({1, 2, 0, 3});
    q = all.narrow(1, 0, heads.queries);
    k = all.select(1, heads.queries);
    v = all.select(1, heads.queries + 1);
  }
};

at::Tensor shared(const at::Tensor& key, int64_t queries) {
  return key.unsqueeze(1).expand({key.size(0), queries, key.size(1), key.size(2)});
}

/// Of one sample's rows [rows, groups · queries · head_dim].
at::Tensor result_view(const at::Tensor& rows, const Heads& heads) {
  return rows.unflatten(-1, {-1, heads.queries, heads.head_dim}).permute({1, 2, 0, 3});
}

struct GroupAttentionFunction : torch::autograd::Function<GroupAttentionFunction> {
  static at::Tensor forward(AutogradContext* saved, const at::Tensor& packed, const c10::intrusive_ptr<Heads>& heads) {
    const int64_t groups = packed.size(2) / ((heads->queries + 2) * heads->head_dim);
    const at::Tensor result =
        at::empty({packed.size(0), packed.size(1), groups * heads->queries * heads->head_dim}, packed.options());
    variable_list kept = {packed, result};
    for (int64_t sample = 0; sample < packed.size(0); ++sample) {
      const GroupViews own(packed.select(0, sample), *heads);
      const auto [out, log_sums] = at::_scaled_dot_product_flash_attention_for_cpu(
          own.q, shared(own.k, heads->queries), shared(own.v, heads->queries), /*dropout_p=*/0.0, heads->is_causal,
          /*attn_mask=*/{}, heads->scale());
      result_view(result.select(0, sample), *heads).copy_(out);
      kept.push_back(log_sums);
    }
    saved->save_for_backward(kept);
    saved->saved_data["heads"] = at::IValue::make_capsule(heads);
    return result;
  }

  static variable_list backward(AutogradContext* saved, const variable_list& gradients) {
    const variable_list kept = saved->get_saved_variables();
    const auto heads = c10::static_intrusive_pointer_cast<Heads>(saved->saved_data["heads"].toCapsule());
    const at::Tensor& packed = kept[0];
    const at::Tensor dout = gradients[0].contiguous(), dpacked = at::empty_like(packed);
    for (int64_t sample = 0; sample < packed.size(0); ++sample) {
      const GroupViews own(packed.select(0, sample), *heads), down(dpacked.select(0, sample), *heads);
      const auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
          result_view(dout.select(0, sample), *heads), own.q, shared(own.k, heads->queries),
          shared(own.v, heads->queries), result_view(kept[1].select(0, sample), *heads),
          kept[static_cast<size_t>(sample) + 2], /*dropout_p=*/0.0, heads->is_causal, /*attn_mask=*/{}, heads->scale());
      down.q.copy_(dq);
      down.k.copy_(heads->queries == 1 ? dk.squeeze(1) : dk.sum(1));
      down.v.copy_(heads->queries == 1 ? dv.squeeze(1) : dv.sum(1));
    }
    return {dpacked, at::Tensor()};
  }
};

}  // namespace

bool has_group_attention(const at::Tensor& packed, const Attention& attention) {
  return packed.device().is_cpu() && packed.dim() == 3 && packed.is_contiguous() && packed.numel() > 0 &&
         (attention.mask == Mask::kFull || attention.mask == Mask::kCausal);
}

at::Tensor group_attention(const at::Tensor& packed, const Attention& attention) {
  auto heads = c10::make_intrusive<Heads>();
  heads->queries = attention.heads / attention.kv_heads;
  heads->head_dim = attention.head_dim;
  heads->is_causal = attention.mask == Mask::kCausal;
  return GroupAttentionFunction::apply(packed, heads);
}

}  // namespace weft
