#include "weft/runner/graph_walk.h"

#include <algorithm>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

namespace weft {
namespace {

using torch::autograd::Edge;
using torch::autograd::Node;
using torch::autograd::variable_list;

/// Nodes that gradients have reached.
class GraphWalk {
 public:
  GraphWalk(const std::vector<at::Tensor>& leaves, std::vector<at::Tensor>& found) : found_(found) {
    for (const at::Tensor& leaf : leaves)
      accumulators_.push_back(leaf.requires_grad() ? torch::autograd::impl::grad_accumulator(leaf) : nullptr);
  }

  void reach(const Edge& edge, at::Tensor gradient) {
    Node* node = edge.function.get();
    for (size_t i = 0; i < accumulators_.size(); ++i) {
      if (accumulators_[i].get() == node) return accumulate(found_[i], std::move(gradient));
    }
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

 private:
  struct Waiting {
    Node* node = nullptr;
    variable_list gradients;
  };

  std::vector<std::shared_ptr<Node>> accumulators_;  ///< by leaf
  std::vector<at::Tensor>& found_;
  std::vector<Waiting> waiting_;
};

void walk_with_engine(const std::vector<at::Tensor>& ends, const std::vector<at::Tensor>& slopes,
                      const std::vector<at::Tensor>& leaves, bool keeps_graph, std::vector<at::Tensor>& found) {
  std::vector<at::Tensor> wanted;
  std::vector<size_t> places;
  for (size_t i = 0; i < leaves.size(); ++i) {
    if (!leaves[i].requires_grad()) continue;
    wanted.push_back(leaves[i]);
    places.push_back(i);
  }
  if (wanted.empty()) return;
  const auto came =
      torch::autograd::grad(ends, wanted, slopes, keeps_graph, /*create_graph=*/false, /*allow_unused=*/true);
  for (size_t i = 0; i < came.size(); ++i) {
    if (came[i].defined()) accumulate(found[places[i]], came[i]);
  }
}

}  // namespace

bool is_own(const at::Tensor& x) {
  return x.use_count() == 1 && x.storage().use_count() == 1 && x.is_contiguous();
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

void walk_graph(const std::vector<at::Tensor>& ends, const std::vector<at::Tensor>& slopes,
                const std::vector<at::Tensor>& leaves, bool keeps_graph, std::vector<at::Tensor>& found) {
  if (ends.empty()) return;
  // Where an engine goes back to chosen tensors alone, nodes ask it whether they lead there, and it knows none of
  // these.
  const auto* chosen = torch::autograd::get_current_graph_task_exec_info();
  if (chosen != nullptr && !chosen->empty()) return walk_with_engine(ends, slopes, leaves, keeps_graph, found);
  GraphWalk walk(leaves, found);
  for (size_t i = 0; i < ends.size(); ++i) walk.reach(torch::autograd::impl::gradient_edge(ends[i]), slopes[i]);
  walk.run(keeps_graph);
}

}  // namespace weft
