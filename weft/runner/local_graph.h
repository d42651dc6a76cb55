#pragma once

#include <functional>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "weft/layers/parameter.h"
#include "weft/layers/weight_gradients.h"
#include "weft/runner/graph_walk.h"

namespace weft {

/// What some operators computed of their operands on one rank, kept for the way back: an autograd graph from leaves to
/// ends, or several where other ranks' numbers came in between. Of tensors it holds what nodes of the graph need, and
/// weights.
struct LocalGraph {
  struct Join {
    GraphEnd sent;
    size_t leaf = 0;                                    ///< what came back, where the graph goes on
    std::function<at::Tensor(const at::Tensor&)> back;  ///< the gradient's way
  };

  GraphLeaves leaves;                    ///< those of joins are behind the segment's
  std::vector<ParameterPtr> parameters;  ///< by leaf: of those that are weights; nothing for others
  std::vector<bool> are_owned;           ///< by leaf: the parameter is not the graph's
  std::vector<Join> joins;
  std::vector<GraphEnd> ends;
  /// What a backward leaves for later of weights' gradients, which are added to their parameters.
  std::unique_ptr<WeightGradients> deferred = std::make_unique<WeightGradients>();

  at::Tensor add_leaf(const at::Tensor& operand, bool has_gradient);
  /// The same of a weight. Its gradients are added to the `owner`'s or, where there is none, to that of a parameter of
  /// the graph.
  at::Tensor add_weight(const at::Tensor& operand, bool has_gradient, const ParameterPtr& owner);
  /// What other ranks made of what was sent; its gradient goes back to them before that of `sent` is known.
  at::Tensor add_join(const at::Tensor& sent, const at::Tensor& came,
                      std::function<at::Tensor(const at::Tensor&)> back);
  /// Gradients of the leaves that have one and are no weights, of gradients of the ends; an undefined one is zero.
  /// Those of weights are added to their parameters, now or when `deferred` runs. Uses the graph up.
  std::vector<at::Tensor> backward(std::vector<at::Tensor> slopes);
  /// A weight's that has no owner, once all of it is there. It is the caller's from then on.
  at::Tensor take_weight_gradient(size_t leaf);
};

}  // namespace weft
