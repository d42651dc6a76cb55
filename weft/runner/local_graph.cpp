#include "weft/runner/local_graph.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros_like.h>

#include "weft/runner/graph_walk.h"

namespace weft {

void LocalGraph::add_leaf(const at::Tensor& operand, bool has_gradient, bool is_weight) {
  leaves.push_back(operand.detach().set_requires_grad(has_gradient));
  ParameterPtr& parameter = parameters.emplace_back();
  if (!is_weight) return;
  parameter = c10::make_intrusive<Parameter>();
  parameter->value = leaves.back();
  const at::ScalarType type = operand.scalar_type();
  parameter->gradient_type = type == at::kBFloat16 || type == at::kHalf ? at::kFloat : type;
}

std::vector<at::Tensor> LocalGraph::backward(const std::vector<at::Tensor>& slopes) {
  const size_t num_leaves = leaves.size();
  for (const Join& join : joins) leaves.push_back(join.leaf);
  std::vector<at::Tensor> found(leaves.size()), from, with;
  for (size_t i = 0; i < ends.size(); ++i) {
    if (!ends[i].requires_grad()) continue;
    from.push_back(ends[i]);
    with.push_back(slopes[i].defined() ? slopes[i] : at::zeros_like(ends[i]));
  }
  const bool keeps_graph = !joins.empty();
  walk_graph(from, with, leaves, keeps_graph, found);
  for (size_t j = joins.size(); j-- > 0;) {
    const at::Tensor& own = found[num_leaves + j];
    const at::Tensor back = joins[j].back(own.defined() ? own : at::zeros_like(joins[j].leaf));
    walk_graph({joins[j].sent}, {back}, leaves, keeps_graph, found);
  }
  found.resize(num_leaves);
  for (size_t i = 0; i < num_leaves; ++i) {
    if (!leaves[i].requires_grad()) continue;
    if (parameters[i]) {
      if (found[i].defined()) parameters[i]->add_gradient(std::exchange(found[i], {}));
    } else if (!found[i].defined()) {
      found[i] = at::zeros_like(leaves[i]);
    }
  }
  leaves.clear();
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
