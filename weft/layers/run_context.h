#pragma once

#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "weft/layers/weight_gradients.h"

namespace weft {

/// The places of a block at which activations change their layout when tensor parallelism spreads it. On one rank
/// nothing happens there.
struct ActivationSites {
  /// Whole rows become the input of weights that are cut by columns.
  std::function<at::Tensor(const at::Tensor&)> enter;
  /// What weights that are cut by rows give becomes whole rows.
  std::function<at::Tensor(const at::Tensor&)> leave;
};

/// How layers are being run: handed down with every call, so that nothing is kept elsewhere.
struct RunContext {
  WeightGradients* deferred = nullptr;                ///< nothing: weight gradients are computed with the backward
  const ActivationSites* sites = nullptr;             ///< nothing: one rank
  double balance_scale = 0;                           ///< of every router's load-balancing loss in what is minimised
  std::vector<at::Tensor>* balance_losses = nullptr;  ///< where routers put the value of theirs

  at::Tensor enter(const at::Tensor& x) const { return sites && sites->enter ? sites->enter(x) : x; }
  at::Tensor leave(const at::Tensor& x) const { return sites && sites->leave ? sites->leave(x) : x; }
};

}  // namespace weft
