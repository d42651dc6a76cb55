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

/// One update in place, as torch.optim.AdamW does it. `step` counts from 1; the gradient is of the states' type.
void update_adamw(const AdamWState& state, const at::Tensor& gradient, const AdamWSettings& settings,
                  double learning_rate, int64_t step);

}  // namespace weft
