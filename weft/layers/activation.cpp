#include "weft/layers/activation.h"

#include <algorithm>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
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

at::Tensor gate_forward(const at::Tensor& units, Activation activation) {
  return activate(gates_of(units), activation).mul_(units.select(-2, 1));
}

at::Tensor gate_backward(const at::Tensor& dy, const at::Tensor& units, Activation activation) {
  const auto [dgates, again] =
      activation_gradient({.activation = activation}, at::mul(dy, units.select(-2, 1)), gates_of(units));
  at::Tensor result = at::empty_like(units, at::MemoryFormat::Contiguous);
  result.select(-2, 0).copy_(dgates);
  at::Tensor dup = result.select(-2, 1);
  at::mul_out(dup, dy, again);
  return result;
}

/// Units of one element, whose gates alternate with what they let through. LibTorch takes such elements one by one. A
/// stretch is put apart, computed and put together while a core's cache has it, so that large tensors are gone through
/// once. Stretches are multiples of any vector's length: LibTorch rounds what is left over otherwise.
class AlternatingGates {
 public:
  static bool are(const at::Tensor& units) {
    return units.size(-1) == 1 && units.is_cpu() && units.is_contiguous() && units.scalar_type() == at::kFloat;
  }

  explicit AlternatingGates(const at::Tensor& units) : units_(units.flatten()), num_gates_(units_.numel() / 2) {
    apart_ = at::empty({2, std::min(num_gates_, kStretch)}, units.options());
  }

  void forward(const at::Tensor& result, Activation activation) const {
    const at::Tensor y = result.view({-1});
    for_each_stretch([&](int64_t begin, const at::Tensor& gates, const at::Tensor& ups) {
      at::Tensor own = y.narrow(0, begin, gates.numel());
      at::mul_out(own, activate(gates, activation), ups);
    });
  }

  void backward(const at::Tensor& dy_in, const at::Tensor& result, Activation activation) const {
    const at::Tensor dy = dy_in.contiguous().view({-1});
    auto* const dunits = result.mutable_data_ptr<float>();
    for_each_stretch([&](int64_t begin, const at::Tensor& gates, const at::Tensor& ups) {
      const at::Tensor own = dy.narrow(0, begin, gates.numel());
      const auto [dgates, again] = activation_gradient({.activation = activation}, ups.mul_(own), gates);
      again.mul_(own);
      put_together(dgates.const_data_ptr<float>(), again.const_data_ptr<float>(), gates.numel(), dunits + 2 * begin);
    });
  }

 private:
  static constexpr int64_t kStretch = 16384;

  template <typename Run>
  void for_each_stretch(Run run) const {
    for (int64_t begin = 0; begin < num_gates_; begin += kStretch) {
      const int64_t count = std::min(kStretch, num_gates_ - begin);
      const at::Tensor gates = apart_.select(0, 0).narrow(0, 0, count), ups = apart_.select(0, 1).narrow(0, 0, count);
      put_apart(units_.const_data_ptr<float>() + 2 * begin, count, gates.mutable_data_ptr<float>(),
                ups.mutable_data_ptr<float>());
      run(begin, gates, ups);
    }
  }

  static void put_apart(const float* __restrict pairs, int64_t count, float* __restrict gates, float* __restrict ups) {
    for (int64_t i = 0; i < count; ++i) {
      gates[i] = pairs[2 * i];
      ups[i] = pairs[2 * i + 1];
    }
  }

  static void put_together(const float* __restrict gates, const float* __restrict ups, int64_t count,
                           float* __restrict pairs) {
    for (int64_t i = 0; i < count; ++i) {
      pairs[2 * i] = gates[i];
      pairs[2 * i + 1] = ups[i];
    }
  }

  at::Tensor units_;
  int64_t num_gates_;
  at::Tensor apart_;
};

struct GatedFunction : torch::autograd::Function<GatedFunction> {
  static at::Tensor forward(AutogradContext* saved, const at::Tensor& units, int64_t number) {
    const auto activation = static_cast<Activation>(number);
    saved->save_for_backward({units});
    saved->saved_data["activation"] = number;
    if (!AlternatingGates::are(units)) return gate_forward(units, activation);
    at::Tensor result = at::empty(units.select(-2, 0).sizes(), units.options());
    AlternatingGates(units).forward(result, activation);
    return result;
  }

  static variable_list backward(AutogradContext* saved, const variable_list& gradients) {
    const at::Tensor units = saved->get_saved_variables()[0];
    const auto activation = static_cast<Activation>(saved->saved_data["activation"].toInt());
    if (!AlternatingGates::are(units)) return {gate_backward(gradients[0], units, activation), at::Tensor()};
    const at::Tensor result = at::empty_like(units);
    AlternatingGates(units).backward(gradients[0], result, activation);
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
