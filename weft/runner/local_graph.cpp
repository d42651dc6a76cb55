#include "weft/runner/local_graph.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/autograd.h>

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
  std::vector<at::Tensor> wanted, found(leaves.size()), of_joins(joins.size());
  std::vector<size_t> places;
  for (size_t i = 0; i < leaves.size(); ++i) {
    if (!leaves[i].requires_grad()) continue;
    wanted.push_back(leaves[i]);
    places.push_back(i);
  }
  for (const Join& join : joins) wanted.push_back(join.leaf);
  const auto add = [](at::Tensor& sum, const at::Tensor& more) {
    if (more.defined()) sum = sum.defined() ? sum + more : more;
  };
  const auto go_back = [&](const std::vector<at::Tensor>& from, const std::vector<at::Tensor>& with) {
    if (from.empty() || wanted.empty()) return;
    const auto came = torch::autograd::grad(from, wanted, with, /*retain_graph=*/!joins.empty(), /*create_graph=*/false,
                                            /*allow_unused=*/true);
    for (size_t i = 0; i < places.size(); ++i) add(found[places[i]], came[i]);
    for (size_t j = 0; j < joins.size(); ++j) add(of_joins[j], came[places.size() + j]);
  };
  std::vector<at::Tensor> from, with;
  for (size_t i = 0; i < ends.size(); ++i) {
    if (!ends[i].requires_grad()) continue;
    from.push_back(ends[i]);
    with.push_back(slopes[i].defined() ? slopes[i] : at::zeros_like(ends[i]));
  }
  go_back(from, with);
  for (size_t j = joins.size(); j-- > 0;) {
    const at::Tensor own = of_joins[j].defined() ? of_joins[j] : at::zeros_like(joins[j].leaf);
    const at::Tensor back = joins[j].back(own);
    if (joins[j].sent.requires_grad()) go_back({joins[j].sent}, {back});
  }
  for (const size_t i : places) {
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

at::Tensor LocalGraph::weight_gradient(size_t leaf) const {
  const Parameter& parameter = *parameters[leaf];
  return parameter.gradient.defined()
             ? parameter.gradient
             : at::zeros_like(parameter.value, parameter.value.options().dtype(parameter.gradient_type));
}

}  // namespace weft
