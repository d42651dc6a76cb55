#include "weft/layers/norm.h"

#include <ATen/ops/add.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>
#include <torch/csrc/autograd/custom_function.h>

#include "weft/layers/own_kernels.h"
#include "weft/tensor/local_tensor.h"

namespace weft {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::ScalarType norm_type(const at::Tensor& x) {
  const bool is_half = x.scalar_type() == at::kBFloat16 || x.scalar_type() == at::kHalf;
  return is_half ? at::kFloat : x.scalar_type();
}

at::Tensor reciprocal_rms(const at::Tensor& x, double epsilon) {
  const auto width = static_cast<double>(x.size(-1));
  const at::Tensor length = at::linalg_vector_norm(x, 2, at::IntArrayRef{-1}, /*keepdim=*/true, norm_type(x));
  return length.square_().div_(width).add_(epsilon).rsqrt_();
}

at::Tensor rms_forward(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& scale) {
  if (norm_type(x) == x.scalar_type()) return at::mul(x, scale).mul_(weight);
  return at::mul(x.to(at::kFloat), scale).to(x.scalar_type()).mul_(weight);
}

struct RmsGradients {
  at::Tensor dx;
  at::Tensor dweight;
};

/// With n = x·scale: dx = scale · (dn − n · mean(dn · n)), dn = dy · weight.
RmsGradients rms_backward(const at::Tensor& dy_in, const at::Tensor& x, const at::Tensor& weight,
                          const at::Tensor& scale, bool needs_weight) {
  const at::ScalarType type = norm_type(x);
  const at::Tensor dy = dy_in.to(type);
  at::Tensor normed = at::mul(x.to(type), scale);
  RmsGradients result;
  if (needs_weight) result.dweight = at::mul(dy, normed).reshape({-1, x.size(-1)}).sum(0);
  at::Tensor dx = at::mul(dy, weight.to(type));
  const at::Tensor mean = at::mul(dx, normed).mean(-1, /*keepdim=*/true);
  dx.sub_(normed.mul_(mean)).mul_(scale);
  result.dx = dx.to(x.scalar_type());
  return result;
}

struct Weights : torch::CustomClassHolder {
  ParameterPtr weight;
  ParameterPtr second;  // bias, or the keys' weight
};

c10::intrusive_ptr<Weights> weights_of(const ParameterPtr& weight, const ParameterPtr& second = {}) {
  auto weights = c10::make_intrusive<Weights>();
  weights->weight = weight;
  weights->second = second;
  return weights;
}

c10::intrusive_ptr<Weights> saved_weights(AutogradContext* saved) {
  return c10::static_intrusive_pointer_cast<Weights>(saved->saved_data["weights"].toCapsule());
}

struct RmsNormFunction : torch::autograd::Function<RmsNormFunction> {
  static at::Tensor forward(AutogradContext* saved, const at::Tensor& x, const at::Tensor& weight, double epsilon,
                            const c10::intrusive_ptr<Weights>& weights) {
    const at::Tensor scale = reciprocal_rms(x, epsilon);
    saved->save_for_backward({x, weight, scale});
    saved->saved_data["weights"] = at::IValue::make_capsule(weights);
    return rms_forward(x, weight, scale);
  }

  static variable_list backward(AutogradContext* saved, const variable_list& gradients) {
    const variable_list tensors = saved->get_saved_variables();
    const auto weights = saved_weights(saved);
    const bool needs_weight = weights->weight->is_trainable();
    const RmsGradients found = rms_backward(gradients[0], tensors[0], tensors[1], tensors[2], needs_weight);
    if (needs_weight) weights->weight->add_gradient(found.dweight);
    return {found.dx, at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

struct LayerNormFunction : torch::autograd::Function<LayerNormFunction> {
  static at::Tensor forward(AutogradContext* saved, const at::Tensor& x, const at::Tensor& weight,
                            const at::Tensor& bias, double epsilon, const c10::intrusive_ptr<Weights>& weights) {
    auto [y, mean, scale] = at::native_layer_norm(x, {x.size(-1)}, weight, bias, epsilon);
    saved->save_for_backward({x, weight, bias, mean, scale});
    saved->saved_data["weights"] = at::IValue::make_capsule(weights);
    return y;
  }

  static variable_list backward(AutogradContext* saved, const variable_list& gradients) {
    const variable_list tensors = saved->get_saved_variables();
    const auto weights = saved_weights(saved);
    const std::array<bool, 3> wanted = {saved->needs_input_grad(0), weights->weight->is_trainable(),
                                        weights->second->is_trainable()};
    const at::Tensor& x = tensors[0];
    auto [dx, dweight, dbias] = at::native_layer_norm_backward(gradients[0].contiguous(), x, {x.size(-1)}, tensors[3],
                                                               tensors[4], tensors[1], tensors[2], wanted);
    if (wanted[1]) weights->weight->add_gradient(dweight);
    if (wanted[2]) weights->second->add_gradient(dbias);
    return {dx, at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

/// Both norms by own kernels. Gives the sum and its norm.
struct OwnNormFunction : torch::autograd::Function<OwnNormFunction> {
  static variable_list forward(AutogradContext* saved, const at::Tensor& x, const std::optional<at::Tensor>& added,
                               const at::Tensor& weight, double epsilon, const c10::intrusive_ptr<Weights>& weights) {
    const at::Tensor bias = weights->second ? weights->second->value : at::Tensor();
    const NormedRows normed = norm_rows(x, added.value_or(at::Tensor()), weight, bias, epsilon);
    saved->save_for_backward({normed.sum, weight, normed.mean, normed.scale});
    saved->saved_data["weights"] = at::IValue::make_capsule(weights);
    saved->saved_data["adds"] = added.has_value();
    saved->set_materialize_grads(false);
    return {added ? normed.sum : x, normed.y};
  }

  static variable_list backward(AutogradContext* saved, const variable_list& gradients) {
    const variable_list tensors = saved->get_saved_variables();
    const auto weights = saved_weights(saved);
    const auto is_trained = [](const ParameterPtr& weight) { return weight && weight->is_trainable(); };
    at::Tensor dx = gradients[0];
    if (gradients[1].defined()) {
      const NormedRows kept{.sum = tensors[0], .y = {}, .mean = tensors[2], .scale = tensors[3]};
      const bool needs_weights = is_trained(weights->weight) || is_trained(weights->second);
      const NormGradients found = norm_rows_backward(gradients[1], gradients[0], kept, tensors[1], needs_weights);
      if (is_trained(weights->weight)) weights->weight->add_gradient(found.dweight);
      if (is_trained(weights->second)) weights->second->add_gradient(found.dbias);
      dx = found.dx;
    }
    return {dx, saved->saved_data["adds"].toBool() ? dx : at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

bool has_own_norm(const at::Tensor& x) {
  return has_own_kernels(x) && x.size(-1) <= kWidestNorm;
}

struct ScaleFunction : torch::autograd::Function<ScaleFunction> {
  static at::Tensor forward(AutogradContext* saved, const at::Tensor& x, const at::Tensor& weight,
                            const c10::intrusive_ptr<Weights>& weights) {
    saved->save_for_backward({weights->weight->is_trainable() ? x : at::Tensor(), weight});
    saved->saved_data["weights"] = at::IValue::make_capsule(weights);
    return at::mul(x, weight);
  }

  static variable_list backward(AutogradContext* saved, const variable_list& gradients) {
    const variable_list tensors = saved->get_saved_variables();
    const auto weights = saved_weights(saved);
    const at::Tensor& dy = gradients[0];
    if (weights->weight->is_trainable()) {
      const at::ScalarType type = norm_type(dy);
      weights->weight->add_gradient(at::mul(dy, tensors[0]).sum(0, /*keepdim=*/false, type));
    }
    if (!saved->needs_input_grad(0)) return {at::Tensor(), at::Tensor(), at::Tensor()};
    return {at::mul(dy, tensors[1]), at::Tensor(), at::Tensor()};
  }
};

/// The query heads and the key heads of packed rows, [tokens, heads, head_dim]; what is left are values.
struct HeadViews {
  at::Tensor q;
  at::Tensor k;
  at::Tensor v;
};

HeadViews heads_of(const at::Tensor& qkv, int64_t heads, int64_t kv_heads, int64_t head_dim) {
  const at::Tensor all = qkv.view({qkv.size(0), heads + 2 * kv_heads, head_dim});
  return {all.narrow(1, 0, heads), all.narrow(1, heads, kv_heads), all.narrow(1, heads + kv_heads, kv_heads)};
}

struct NormHeadsFunction : torch::autograd::Function<NormHeadsFunction> {
  static at::Tensor forward(AutogradContext* saved, const at::Tensor& qkv, const at::Tensor& q_weight,
                            const at::Tensor& k_weight, int64_t heads, int64_t kv_heads, double epsilon,
                            const c10::intrusive_ptr<Weights>& weights) {
    const int64_t head_dim = q_weight.size(0);
    const HeadViews in = heads_of(qkv, heads, kv_heads, head_dim);
    const at::Tensor result = at::empty_like(qkv);
    const HeadViews out = heads_of(result, heads, kv_heads, head_dim);
    const at::Tensor q_scale = reciprocal_rms(in.q, epsilon);
    const at::Tensor k_scale = reciprocal_rms(in.k, epsilon);
    out.q.copy_(rms_forward(in.q, q_weight, q_scale));
    out.k.copy_(rms_forward(in.k, k_weight, k_scale));
    out.v.copy_(in.v);
    saved->save_for_backward({qkv, q_weight, k_weight, q_scale, k_scale});
    saved->saved_data["weights"] = at::IValue::make_capsule(weights);
    saved->saved_data["heads"] = heads;
    saved->saved_data["kv_heads"] = kv_heads;
    return result;
  }

  static variable_list backward(AutogradContext* saved, const variable_list& gradients) {
    const variable_list tensors = saved->get_saved_variables();
    const auto weights = saved_weights(saved);
    const int64_t heads = saved->saved_data["heads"].toInt();
    const int64_t kv_heads = saved->saved_data["kv_heads"].toInt();
    const int64_t head_dim = tensors[1].size(0);
    const HeadViews in = heads_of(tensors[0], heads, kv_heads, head_dim);
    const HeadViews dy = heads_of(gradients[0].contiguous(), heads, kv_heads, head_dim);
    const at::Tensor result = at::empty_like(tensors[0]);
    const HeadViews dx = heads_of(result, heads, kv_heads, head_dim);
    const auto pass = [&](const at::Tensor& dout, const at::Tensor& x, const at::Tensor& weight,
                          const at::Tensor& scale, const at::Tensor& din, Parameter& parameter) {
      const RmsGradients found = rms_backward(dout, x, weight, scale, parameter.is_trainable());
      if (parameter.is_trainable()) parameter.add_gradient(found.dweight);
      din.copy_(found.dx);
    };
    pass(dy.q, in.q, tensors[1], tensors[3], dx.q, *weights->weight);
    pass(dy.k, in.k, tensors[2], tensors[4], dx.k, *weights->second);
    dx.v.copy_(dy.v);
    return {result, at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

struct NormGroupHeadsFunction : torch::autograd::Function<NormGroupHeadsFunction> {
  static at::Tensor heads_in(const at::Tensor& packed, const GroupHeads& which) {
    const int64_t width = packed.size(-1);
    return packed.view({packed.numel() / width, width / (which.size * which.head_dim), which.size, which.head_dim})
        .narrow(2, which.first, which.count);
  }

  static at::Tensor forward(AutogradContext* saved, const at::Tensor& packed, const at::Tensor& weight, int64_t size,
                            int64_t first, int64_t count, double epsilon, bool in_place) {
    at::Tensor result =
        in_place && packed.is_contiguous() ? packed.detach() : packed.clone(at::MemoryFormat::Contiguous);
    const at::Tensor heads =
        heads_in(result, {.size = size, .head_dim = weight.size(0), .first = first, .count = count});
    const at::Tensor kept = heads.clone(at::MemoryFormat::Contiguous);
    const at::Tensor scale = reciprocal_rms(kept, epsilon);
    heads.copy_(rms_forward(kept, weight, scale));
    saved->save_for_backward({kept, weight, scale});
    saved->saved_data["size"] = size;
    saved->saved_data["first"] = first;
    return result;
  }

  static variable_list backward(AutogradContext* saved, const variable_list& gradients) {
    const variable_list tensors = saved->get_saved_variables();
    const at::Tensor& kept = tensors[0];
    at::Tensor dx = is_own(gradients[0]) ? gradients[0] : gradients[0].clone(at::MemoryFormat::Contiguous);
    const at::Tensor heads = heads_in(dx, {.size = saved->saved_data["size"].toInt(),
                                           .head_dim = kept.size(-1),
                                           .first = saved->saved_data["first"].toInt(),
                                           .count = kept.size(-2)});
    const RmsGradients found = rms_backward(heads, kept, tensors[1], tensors[2], saved->needs_input_grad(1));
    heads.copy_(found.dx);
    return {dx, found.dweight, at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

RowsAndNorm add_and_norm(const at::Tensor& x, at::Tensor added, const ParameterPtr& weight, const ParameterPtr& bias,
                         double epsilon) {
  if (has_own_norm(x)) {
    const variable_list both = OwnNormFunction::apply(x, added.defined() ? std::optional(added) : std::nullopt,
                                                      weight->value, epsilon, weights_of(weight, bias));
    return {both[0], both[1]};
  }
  const at::Tensor rows = added.defined() ? at::add(x, added) : x;
  added.reset();  // what was added is not needed while its norm is made
  return {rows, bias ? layer_norm(rows, weight, bias, epsilon) : rms_norm(rows, weight, epsilon)};
}

at::Tensor rms_norm(const at::Tensor& x, const ParameterPtr& weight, double epsilon) {
  if (has_own_norm(x)) return add_and_norm(x, {}, weight, {}, epsilon).normed;
  return RmsNormFunction::apply(x, weight->value, epsilon, weights_of(weight));
}

at::Tensor layer_norm(const at::Tensor& x, const ParameterPtr& weight, const ParameterPtr& bias, double epsilon) {
  if (has_own_norm(x)) return add_and_norm(x, {}, weight, bias, epsilon).normed;
  return LayerNormFunction::apply(x, weight->value, bias->value, epsilon, weights_of(weight, bias));
}

at::Tensor scale_columns(const at::Tensor& x, const ParameterPtr& weight) {
  return ScaleFunction::apply(x, weight->value, weights_of(weight));
}

at::Tensor norm_group_heads(const at::Tensor& packed, const at::Tensor& weight, const GroupHeads& which, double epsilon,
                            bool in_place) {
  if (packed.numel() == 0) return packed.clone();
  return NormGroupHeadsFunction::apply(packed, weight, which.size, which.first, which.count, epsilon, in_place);
}

at::Tensor norm_heads(const at::Tensor& qkv, const ParameterPtr& q_weight, const ParameterPtr& k_weight, int64_t heads,
                      int64_t kv_heads, double epsilon) {
  return NormHeadsFunction::apply(qkv, q_weight->value, k_weight->value, heads, kv_heads, epsilon,
                                  weights_of(q_weight, k_weight));
}

}  // namespace weft
