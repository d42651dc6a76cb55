#pragma once

#include <algorithm>
#include <functional>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include "weft/layers/parameter.h"

// What tests of layers share: a layer against plain differentiable operators, values and gradients.
namespace weft {

inline at::Tensor random_tensor(at::IntArrayRef shape, uint64_t seed, at::ScalarType type = at::kDouble) {
  return at::empty(shape, at::TensorOptions().dtype(at::kDouble))
      .normal_(0, 1, at::detail::createCPUGenerator(seed))
      .to(type);
}

/// Ids below `end`, some of them equal.
inline at::Tensor random_ids(int64_t count, int64_t end, uint64_t seed) {
  return at::empty({count}, at::TensorOptions().dtype(at::kLong)).random_(0, end, at::detail::createCPUGenerator(seed));
}

inline ParameterPtr parameter_of(const at::Tensor& value, bool is_trainable = true) {
  auto parameter = c10::make_intrusive<Parameter>();
  parameter->value = value.detach().clone().set_requires_grad(is_trainable);
  parameter->gradient_type = value.scalar_type();
  parameter->spec = {.pieces = {whole_weight("weight", value.sizes().vec())}, .shape = value.sizes().vec()};
  return parameter;
}

inline ParameterPtr random_parameter(at::IntArrayRef shape, uint64_t seed, bool is_trainable = true) {
  return parameter_of(random_tensor(shape, seed), is_trainable);
}

/// The largest difference over the largest expected magnitude; of expectations near zero, over a small one.
inline double relative_difference(const at::Tensor& found, const at::Tensor& expected) {
  EXPECT_EQ(found.sizes(), expected.sizes());
  if (found.sizes() != expected.sizes() || found.numel() == 0) return 0;
  const at::Tensor a = found.detach().to(at::kDouble);
  const at::Tensor b = expected.detach().to(at::kDouble);
  return (a - b).abs().max().item<double>() / std::max(b.abs().max().item<double>(), 1e-2);
}

using Layer = std::function<at::Tensor(const at::Tensor& x)>;
using PlainLayer = std::function<at::Tensor(const at::Tensor& x, const std::vector<at::Tensor>& weights)>;

/// Compares values, the gradient of x and those of the parameters, all for a random gradient of the result.
inline void expect_same(const at::Tensor& x, const std::vector<ParameterPtr>& parameters, const Layer& layer,
                        const PlainLayer& plain, double tolerance = 1e-12) {
  const at::Tensor x_found = x.detach().clone(at::MemoryFormat::Preserve).set_requires_grad(true);
  const at::Tensor x_plain = x.detach().clone().set_requires_grad(true);
  std::vector<at::Tensor> weights;
  for (const ParameterPtr& parameter : parameters) {
    parameter->gradient = at::Tensor();
    weights.push_back(parameter->value.detach().clone().set_requires_grad(true));
  }
  const at::Tensor found = layer(x_found);
  const at::Tensor expected = plain(x_plain, weights);
  ASSERT_EQ(found.sizes(), expected.sizes());
  ASSERT_EQ(found.scalar_type(), x.scalar_type());
  EXPECT_LE(relative_difference(found, expected), tolerance) << "value";
  const at::Tensor gradient = random_tensor(expected.sizes(), 999, expected.scalar_type());
  found.backward(gradient.clone());
  expected.backward(gradient);
  ASSERT_TRUE(x_found.grad().defined());
  EXPECT_LE(relative_difference(x_found.grad(), x_plain.grad()), tolerance) << "gradient of x";
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (!parameters[i]->is_trainable()) {
      EXPECT_FALSE(parameters[i]->gradient.defined()) << "weight " << i << " is frozen";
      continue;
    }
    ASSERT_TRUE(parameters[i]->gradient.defined()) << "gradient of weight " << i;
    EXPECT_LE(relative_difference(parameters[i]->gradient, weights[i].grad()), tolerance) << "gradient of weight " << i;
  }
}

/// The same values, laid out so that neighbours in a row are not neighbours in memory.
inline at::Tensor with_gaps(const at::Tensor& x) {
  return at::stack({x, x}, -1).select(-1, 0);
}

}  // namespace weft
