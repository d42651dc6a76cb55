#include "weft/layers/activation.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/sigmoid_backward.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/silu_backward.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/tanh_backward.h>
#include <ATen/ops/threshold_backward.h>
#include <torch/csrc/autograd/custom_function.h>

#include "weft/base/check.h"
#include "weft/layers/own_kernels.h"

namespace weft {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr double kQuickGeluSlope = 1.702;

struct QuickGeluFunction : torch::autograd::Function<QuickGeluFunction> {
  static at::Tensor forward(AutogradContext* saved, const at::Tensor& x) {
    saved->save_for_backward({x});
    if (has_own_kernels(x)) return quick_gelu_rows(x);
    return at::mul(x, kQuickGeluSlope).sigmoid_().mul_(x);
  }

  /// As it is silu(a·x) / a, its slope is that of silu at a·x.
  static variable_list backward(AutogradContext* saved, const variable_list& gradients) {
    const at::Tensor x = saved->get_saved_variables()[0];
    if (has_own_kernels(x)) return {quick_gelu_rows_backward(gradients[0], x)};
    return {at::silu_backward(gradients[0], at::mul(x, kQuickGeluSlope))};
  }
};

bool has_own_swiglu(const at::Tensor& gate_up) {
  return has_own_kernels(gate_up) && gate_up.dim() == 2 && gate_up.size(1) % 16 == 0;
}

struct SwigluFunction : torch::autograd::Function<SwigluFunction> {
  static at::Tensor forward(AutogradContext* saved, const at::Tensor& gate_up) {
    saved->save_for_backward({gate_up});
    if (has_own_swiglu(gate_up)) return swiglu_rows(gate_up);
    const int64_t width = gate_up.size(-1) / 2;
    return at::silu(gate_up.narrow(-1, 0, width)).mul_(gate_up.narrow(-1, width, width));
  }

  static variable_list backward(AutogradContext* saved, const variable_list& gradients) {
    const at::Tensor gate_up = saved->get_saved_variables()[0];
    const at::Tensor& dy = gradients[0];
    if (has_own_swiglu(gate_up)) return {swiglu_rows_backward(dy, gate_up)};
    const int64_t width = gate_up.size(-1) / 2;
    const at::Tensor gate = gate_up.narrow(-1, 0, width);
    at::Tensor result = at::empty_like(gate_up);
    at::Tensor dup = result.narrow(-1, width, width);
    at::silu_out(dup, gate);
    dup.mul_(dy);
    at::Tensor dgate = result.narrow(-1, 0, width);
    at::mul_out(dgate, dy, gate_up.narrow(-1, width, width));
    at::silu_backward_out(dgate, dgate, gate);
    return {result};
  }
};

/// The gates of units. Functions of elements are slow on numbers that lie apart, and a copy is not.
at::Tensor gates_of(const at::Tensor& units) {
  const at::Tensor gates = units.select(-2, 0);
  constexpr int64_t kLongStretch = 16;
  return units.size(-1) < kLongStretch ? gates.contiguous() : gates;
}

struct GatedFunction : torch::autograd::Function<GatedFunction> {
  static at::Tensor forward(AutogradContext* saved, const at::Tensor& units, int64_t activation) {
    saved->save_for_backward({units});
    saved->saved_data["activation"] = activation;
    return activate(gates_of(units), static_cast<Activation>(activation)).mul_(units.select(-2, 1));
  }

  static variable_list backward(AutogradContext* saved, const variable_list& gradients) {
    const at::Tensor units = saved->get_saved_variables()[0];
    const MlpActivation activation{.activation = static_cast<Activation>(saved->saved_data["activation"].toInt())};
    const auto [dgates, again] =
        activation_gradient(activation, at::mul(gradients[0], units.select(-2, 1)), gates_of(units));
    at::Tensor result = at::empty_like(units, at::MemoryFormat::Contiguous);
    result.select(-2, 0).copy_(dgates);
    at::Tensor dup = result.select(-2, 1);
    at::mul_out(dup, gradients[0], again);
    return {result, at::Tensor()};
  }
};

}  // namespace

at::Tensor activate(const at::Tensor& x, Activation activation) {
  switch (activation) {
    case Activation::kSilu:
      return at::silu(x);
    case Activation::kGelu:
      return at::gelu(x);
    case Activation::kGeluTanh:
      return at::gelu(x, "tanh");
    case Activation::kQuickGelu:
      return QuickGeluFunction::apply(x);
    case Activation::kRelu:
      return at::relu(x);
    case Activation::kTanh:
      return at::tanh(x);
    case Activation::kSigmoid:
      return at::sigmoid(x);
  }
  WEFT_CHECK(false, "an activation without a rule");
}

at::Tensor MlpActivation::operator()(const at::Tensor& wide) const {
  return is_gated ? swiglu(wide) : activate(wide, activation);
}

ActivationGradient activation_gradient(const MlpActivation& activation, const at::Tensor& dy, const at::Tensor& wide) {
  const at::NoGradGuard no_graph;
  if (activation.is_gated && has_own_swiglu(wide)) return {swiglu_rows_backward(dy, wide, dy), dy};
  WEFT_CHECK(!activation.is_gated, "a gated activation that is made again without a kernel for it");
  switch (activation.activation) {
    case Activation::kQuickGelu:
      if (has_own_kernels(wide)) return {quick_gelu_rows_backward(dy, wide, dy), dy};
      return {at::silu_backward(dy, at::mul(wide, kQuickGeluSlope)), activate(wide, activation.activation)};
    case Activation::kSilu:
      return {at::silu_backward(dy, wide), at::silu(wide)};
    case Activation::kGelu:
      return {at::gelu_backward(dy, wide), at::gelu(wide)};
    case Activation::kGeluTanh:
      return {at::gelu_backward(dy, wide, "tanh"), at::gelu(wide, "tanh")};
    case Activation::kRelu: {
      at::Tensor again = at::relu(wide);
      return {at::threshold_backward(dy, again, 0), again};
    }
    case Activation::kTanh: {
      at::Tensor again = at::tanh(wide);
      return {at::tanh_backward(dy, again), again};
    }
    case Activation::kSigmoid: {
      at::Tensor again = at::sigmoid(wide);
      return {at::sigmoid_backward(dy, again), again};
    }
  }
  WEFT_CHECK(false, "an activation without a rule");
}

bool makes_activation_again(const at::Tensor& wide, bool is_gated) {
  return is_gated ? has_own_swiglu(wide) : has_own_kernels(wide);
}

at::Tensor swiglu(const at::Tensor& gate_up) {
  return SwigluFunction::apply(gate_up);
}

at::Tensor gated(const at::Tensor& units, Activation activation) {
  if (units.size(-3) == 1 && activation == Activation::kSilu) return swiglu(units.flatten(-3)).unsqueeze(-2);
  return GatedFunction::apply(units, static_cast<int64_t>(activation));
}

}  // namespace weft
