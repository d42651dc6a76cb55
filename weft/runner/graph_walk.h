#pragma once

#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

namespace torch::autograd {
struct Node;
}

namespace weft {

/// Adds to a sum that may be nothing yet, in its own memory where nobody else has a hold of it.
void accumulate(at::Tensor& sum, at::Tensor more);

/// A tensor's place in an autograd graph. It holds the graph, and none of the tensor's memory.
struct GraphEnd {
  std::shared_ptr<torch::autograd::Node> node;  ///< nothing: it has no gradient
  uint32_t output = 0;

  static GraphEnd of(const at::Tensor& x);
  at::Tensor zeros() const;
};

/// Where a graph begins. Autograd's own leaves live as long as the graph; these are only held by nodes that need them.
class GraphLeaves {
 public:
  /// The tensor as the graph's next leaf.
  at::Tensor add(const at::Tensor& x, bool has_gradient);
  size_t size() const { return inputs_.size(); }
  bool has_gradient(size_t leaf) const { return inputs_[leaf] >= 0; }
  at::Tensor zeros(size_t leaf) const;

 private:
  friend class GraphWalk;

  std::shared_ptr<torch::autograd::Node> node_;  ///< at which gradients of all leaves arrive
  std::vector<int64_t> inputs_;                  ///< by leaf: of the node; -1 without gradient
};

/// Goes back through an autograd graph of a few nodes on this thread, the latest node first, and adds to `found` the
/// gradients of leaves; an undefined one is zero. What the engine does, without what it sets up for each call: queues,
/// threads for devices, a search for the nodes that lead to the leaves. The graph must be one that this thread made;
/// hooks of tensors are not called. Without `keeps_graph` it is used up: what a node held is freed once it has run.
void walk_graph(const std::vector<GraphEnd>& ends, std::vector<at::Tensor> slopes, const GraphLeaves& leaves,
                bool keeps_graph, std::vector<at::Tensor>& found);

}  // namespace weft
