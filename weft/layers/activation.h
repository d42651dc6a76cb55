#pragma once

#include <ATen/core/Tensor.h>

#include "weft/program/activation.h"

namespace weft {

at::Tensor activate(const at::Tensor& x, Activation activation);

/// What lies between the two products of an MLP: an activation, or silu(gate) · up of rows that hold gate and up.
struct MlpActivation {
  Activation activation = Activation::kSilu;
  bool is_gated = false;

  at::Tensor operator()(const at::Tensor& wide) const;
};

/// An activation's way back, and what its forward gave once more, in the memory of `dy`, which is used up. No gradients
/// go through it.
struct ActivationGradient {
  at::Tensor dwide;
  at::Tensor again;
};
/// Whether what an activation gives is rather made again than kept: where that costs no pass of its own.
bool makes_activation_again(const at::Tensor& wide, bool is_gated);
ActivationGradient activation_gradient(const MlpActivation& activation, const at::Tensor& dy, const at::Tensor& wide);

/// silu(gate) · up of rows that hold gate and up side by side. Keeps only its input for the backward.
at::Tensor swiglu(const at::Tensor& gate_up);

/// activation(gate) · up of [..., units, 2, unit], where each unit holds a gate and what it lets through. Gives
/// [..., units, unit] and keeps only its input for the backward.
at::Tensor gated(const at::Tensor& units, Activation activation);

}  // namespace weft
