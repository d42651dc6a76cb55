#pragma once

#include <functional>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "weft/layers/parameter.h"
#include "weft/layers/weight_gradients.h"

namespace weft {

/// What some operators computed of their operands on one rank, kept for the way back: an autograd graph from leaves to
/// ends, or several where other ranks' numbers came in between.
struct LocalGraph {
  struct Join {
    at::Tensor sent;                                    ///< end of a graph
    at::Tensor leaf;                                    ///< what came back, where the graph goes on
    std::function<at::Tensor(const at::Tensor&)> back;  ///< the gradient's way
  };

  std::vector<at::Tensor> leaves;
  std::vector<ParameterPtr> parameters;  ///< by leaf: of those that are weights; nothing for others
  std::vector<Join> joins;
  std::vector<at::Tensor> ends;
  /// What a backward leaves for later of weights' gradients, which are added to their parameters.
  std::unique_ptr<WeightGradients> deferred = std::make_unique<WeightGradients>();

  void add_leaf(const at::Tensor& operand, bool has_gradient, bool is_weight);
  /// Gradients of the leaves that have one and are no weights, of gradients of the ends; an undefined one is zero.
  /// Those of weights are added to their parameters, now or when `deferred` runs. Uses the graph up.
  std::vector<at::Tensor> backward(const std::vector<at::Tensor>& slopes);
  /// A weight's, once all of it is there. It is the caller's from then on.
  at::Tensor take_weight_gradient(size_t leaf);
};

}  // namespace weft
