#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace weft {

struct AdamWSettings {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.1;
};

/// Elements that AdamW updates together: contiguous, of one floating-point type, on one device.
struct AdamWState {
  at::Tensor master;   ///< the weights
  at::Tensor moment1;  ///< running mean of gradients
  at::Tensor moment2;  ///< running mean of their squares
};

struct AdamWStep {
  double learning_rate = 0;
  int64_t number = 1;         ///< of the update, from 1
  double gradient_scale = 1;  ///< what gradients are multiplied with first
  /// States in bf16 are rounded by chance, so that changes too small for them add up all the same. What is drawn for an
  /// element depends on these and its place, not on who updates it.
  uint64_t key = 0;
  int64_t first_element = 0;  ///< the place of the first element
};

/// One update in place, as torch.optim.AdamW does it. The gradient is of any floating-point type and may be used up.
/// `values`, where there are any, become what the weights are then.
void update_adamw(const AdamWState& state, const at::Tensor& gradient, const at::Tensor& values,
                  const AdamWSettings& settings, const AdamWStep& step);

}  // namespace weft
