#include "weft/runner/local_graph.h"

#include <utility>

#include <ATen/ops/zeros_like.h>

namespace weft {

at::Tensor LocalGraph::add_leaf(const at::Tensor& operand, bool has_gradient) {
  parameters.emplace_back();
  are_owned.push_back(false);
  return leaves.add(operand, has_gradient);
}

at::Tensor LocalGraph::add_weight(const at::Tensor& operand, bool has_gradient, const ParameterPtr& owner) {
  at::Tensor leaf = add_leaf(operand, has_gradient);
  ParameterPtr& parameter = parameters.back();
  parameter = owner;
  are_owned.back() = owner != nullptr;
  if (owner) return leaf;
  parameter = c10::make_intrusive<Parameter>();
  parameter->value = leaf;
  const at::ScalarType type = operand.scalar_type();
  parameter->gradient_type = type == at::kBFloat16 || type == at::kHalf ? at::kFloat : type;
  return leaf;
}

at::Tensor LocalGraph::add_join(const at::Tensor& sent, const at::Tensor& came,
                                std::function<at::Tensor(const at::Tensor&)> back) {
  at::Tensor leaf = leaves.add(came, sent.requires_grad());
  if (sent.requires_grad())
    joins.push_back({.sent = GraphEnd::of(sent), .leaf = leaves.size() - 1, .back = std::move(back)});
  return leaf;
}

std::vector<at::Tensor> LocalGraph::backward(std::vector<at::Tensor> slopes) {
  std::vector<at::Tensor> found(leaves.size()), with;
  std::vector<GraphEnd> from;
  for (size_t i = 0; i < ends.size(); ++i) {
    if (!ends[i].node) continue;
    with.push_back(slopes[i].defined() ? std::exchange(slopes[i], {}) : ends[i].zeros());
    from.push_back(ends[i]);
  }
  const bool keeps_graph = !joins.empty();
  walk_graph(from, std::move(with), leaves, keeps_graph, found);
  for (size_t j = joins.size(); j-- > 0;) {
    const at::Tensor own = std::exchange(found[joins[j].leaf], {});
    const at::Tensor back = joins[j].back(own.defined() ? own : leaves.zeros(joins[j].leaf));
    walk_graph({joins[j].sent}, {back}, leaves, keeps_graph, found);
  }
  found.resize(parameters.size());
  for (size_t i = 0; i < found.size(); ++i) {
    if (!leaves.has_gradient(i)) continue;
    if (parameters[i]) {
      if (!found[i].defined()) continue;
      // A parameter keeps what it is given first. What is added to a single row has that row's gradient, which others
      // have, too.
      at::Tensor own = std::exchange(found[i], {});
      if (own.storage().use_count() > 1) own = own.clone();
      parameters[i]->add_gradient(own);
    } else if (!found[i].defined()) {
      found[i] = leaves.zeros(i);
    }
  }
  leaves = {};
  joins.clear();
  ends.clear();
  return found;
}

at::Tensor LocalGraph::take_weight_gradient(size_t leaf) {
  Parameter& parameter = *parameters[leaf];
  return parameter.gradient.defined()
             ? std::exchange(parameter.gradient, {})
             : at::zeros_like(parameter.value, parameter.value.options().dtype(parameter.gradient_type));
}

}  // namespace weft
