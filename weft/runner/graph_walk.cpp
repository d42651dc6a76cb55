#include "weft/runner/graph_walk.h"

#include <algorithm>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include "weft/base/check.h"
#include "weft/tensor/local_tensor.h"

namespace weft {
namespace {

using torch::autograd::Edge;
using torch::autograd::Node;
using torch::autograd::variable_list;

/// Never runs: gradients end here.
struct LeafNode : Node {
  variable_list apply(variable_list&& /*gradients*/) override {
    WEFT_CHECK(false, "a graph is gone back through beyond its leaves");
  }
};

}  // namespace

/// Nodes that gradients have reached.
class GraphWalk {
 public:
  GraphWalk(const GraphLeaves& leaves, std::vector<at::Tensor>& found) : leaves_(leaves), found_(found) {
    for (size_t leaf = 0; leaf < leaves.size(); ++leaf) {
      if (leaves.has_gradient(leaf)) leaf_of_input_.push_back(leaf);
    }
  }

  void reach(const Edge& edge, at::Tensor gradient) {
    Node* node = edge.function.get();
    if (node == leaves_.node_.get()) return accumulate(found_[leaf_of_input_[edge.input_nr]], std::move(gradient));
    auto waiting = std::find_if(waiting_.begin(), waiting_.end(), [&](const auto& one) { return one.node == node; });
    if (waiting == waiting_.end()) {
      waiting_.push_back({.node = node, .gradients = variable_list(node->num_inputs())});
      waiting = waiting_.end() - 1;
    }
    accumulate(waiting->gradients[edge.input_nr], std::move(gradient));
  }

  void run(bool keeps_graph) {
    while (!waiting_.empty()) {
      // All that reads what a node made was made after it.
      const auto latest = std::max_element(waiting_.begin(), waiting_.end(), [](const auto& a, const auto& b) {
        return a.node->sequence_nr() < b.node->sequence_nr();
      });
      Node& node = *latest->node;
      variable_list gradients = std::move(latest->gradients);
      waiting_.erase(latest);
      if (!keeps_graph) node.will_release_variables();
      variable_list before = node(std::move(gradients));
      if (!keeps_graph) node.release_variables();
      // Sums over what was broadcast, and types.
      torch::autograd::validate_outputs(node.next_edges(), before,
                                        [&](const std::string& message) { return node.name() + ": " + message; });
      for (size_t i = 0; i < before.size(); ++i) {
        if (node.next_edge(i).is_valid() && before[i].defined()) reach(node.next_edge(i), std::move(before[i]));
      }
    }
  }

  void run_by_engine(const std::vector<GraphEnd>& ends, const std::vector<at::Tensor>& slopes, bool keeps_graph) {
    torch::autograd::edge_list from, to;
    for (const GraphEnd& end : ends) from.emplace_back(end.node, end.output);
    for (const size_t leaf : leaf_of_input_)
      to.emplace_back(leaves_.node_, static_cast<uint32_t>(leaves_.inputs_[leaf]));
    if (to.empty()) return;
    variable_list came = torch::autograd::Engine::get_default_engine().execute(
        from, slopes, keeps_graph, /*create_graph=*/false, /*accumulate_grad=*/false, to);
    for (size_t i = 0; i < came.size(); ++i) {
      if (came[i].defined()) accumulate(found_[leaf_of_input_[i]], std::move(came[i]));
    }
  }

 private:
  struct Waiting {
    Node* node = nullptr;
    variable_list gradients;
  };

  const GraphLeaves& leaves_;
  std::vector<size_t> leaf_of_input_;
  std::vector<at::Tensor>& found_;
  std::vector<Waiting> waiting_;
};

GraphEnd GraphEnd::of(const at::Tensor& x) {
  if (!x.requires_grad()) return {};
  const Edge edge = torch::autograd::impl::gradient_edge(x);
  return {.node = edge.function, .output = edge.input_nr};
}

at::Tensor GraphEnd::zeros() const {
  return node->input_metadata(output).zeros_like();
}

at::Tensor GraphLeaves::add(const at::Tensor& x, bool has_gradient) {
  at::Tensor leaf = x.detach();
  inputs_.push_back(-1);
  if (!has_gradient) return leaf;
  if (!node_) node_ = std::make_shared<LeafNode>();
  inputs_.back() = node_->num_inputs();
  torch::autograd::create_gradient_edge(leaf, node_);
  return leaf;
}

at::Tensor GraphLeaves::zeros(size_t leaf) const {
  return node_->input_metadata(static_cast<size_t>(inputs_[leaf])).zeros_like();
}

void accumulate(at::Tensor& sum, at::Tensor more) {
  if (!sum.defined()) {
    sum = std::move(more);
  } else if (!at::GradMode::is_enabled() && is_own(sum) && sum.sizes() == more.sizes() &&
             sum.scalar_type() == more.scalar_type()) {
    sum.add_(more);
  } else {
    sum = sum + more;
  }
}

void walk_graph(const std::vector<GraphEnd>& ends, std::vector<at::Tensor> slopes, const GraphLeaves& leaves,
                bool keeps_graph, std::vector<at::Tensor>& found) {
  if (ends.empty()) return;
  GraphWalk walk(leaves, found);
  // Where an engine goes back to chosen tensors alone, nodes ask it whether they lead there, and it knows none of
  // these.
  const auto* chosen = torch::autograd::get_current_graph_task_exec_info();
  if (chosen != nullptr && !chosen->empty()) return walk.run_by_engine(ends, slopes, keeps_graph);
  for (size_t i = 0; i < ends.size(); ++i) walk.reach({ends[i].node, ends[i].output}, std::exchange(slopes[i], {}));
  walk.run(keeps_graph);
}

}  // namespace weft
