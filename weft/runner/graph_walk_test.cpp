#include "weft/runner/graph_walk.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/silu.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include "tests/support/layers/live_bytes.h"
#include "tests/support/tensor/spread_tensor.h"

namespace weft {
namespace {

/// Broadcasts, views, several uses of one value, parts that lead nowhere.
std::vector<at::Tensor> some_graph(const std::vector<at::Tensor>& leaves) {
  const at::Tensor& x = leaves[0];
  const at::Tensor a = at::silu(x * leaves[1] + leaves[2]);
  const std::vector<at::Tensor> parts = a.split(2, -1);
  const at::Tensor b = at::cat({parts[1], parts[0] * a.sum(-1, /*keepdim=*/true)}, -1);
  const at::Tensor c = at::layer_norm(b + x.transpose(0, 1).transpose(0, 1), {4}, leaves[1], {}, 1e-3);
  return {c.select(0, 1).matmul(leaves[3]), b.mean()};
}

std::vector<at::Tensor> some_leaves(GraphLeaves& all) {
  std::vector<at::Tensor> leaves = {random_tensor({3, 5, 4}, 1), random_tensor({4}, 2), random_tensor({5, 1}, 3),
                                    random_tensor({4, 2}, 4), random_tensor({2}, 5)};
  for (size_t i = 0; i < leaves.size(); ++i) leaves[i] = all.add(leaves[i], i != 2);
  return leaves;
}

TEST(GraphWalk, GivesTheEnginesGradients) {
  GraphLeaves begins;
  const std::vector<at::Tensor> leaves = some_leaves(begins);
  const std::vector<at::Tensor> ends = some_graph(leaves);
  std::vector<at::Tensor> slopes, found(leaves.size()), again(leaves.size());
  for (const at::Tensor& end : ends) slopes.push_back(random_tensor(end.sizes().vec(), 9));
  const auto expected = torch::autograd::grad(ends, {leaves[0], leaves[1], leaves[3]}, slopes, /*retain_graph=*/true);
  const at::NoGradGuard no_graph;
  const std::vector<GraphEnd> from = {GraphEnd::of(ends[0]), GraphEnd::of(ends[1])};
  walk_graph(from, slopes, begins, /*keeps_graph=*/true, found);
  walk_graph(from, slopes, begins, /*keeps_graph=*/false, again);
  for (const std::vector<at::Tensor>& own : {found, again}) {
    EXPECT_LE(largest_difference(own[0], expected[0]), 1e-14);
    EXPECT_LE(largest_difference(own[1], expected[1]), 1e-13);
    EXPECT_LE(largest_difference(own[3], expected[2]), 1e-14);
    EXPECT_FALSE(own[2].defined());
    EXPECT_FALSE(own[4].defined());
  }
}

TEST(GraphWalk, SumsLeaveTensorsThatOthersHoldAsTheyAre) {
  const at::NoGradGuard no_graph;
  const at::Tensor first = random_tensor({3}, 1), before = first.clone();
  at::Tensor sum;
  accumulate(sum, first);
  accumulate(sum, random_tensor({3}, 2));  // a tensor of its own from here on
  const void* memory = sum.data_ptr();
  accumulate(sum, random_tensor({3}, 3));
  EXPECT_EQ(sum.data_ptr(), memory);
  const at::Tensor view = sum.view({3, 1});
  accumulate(sum, random_tensor({3}, 4));
  EXPECT_NE(sum.data_ptr(), memory);
  EXPECT_TRUE(first.equal(before));
  EXPECT_LE(largest_difference(view.flatten(), first + random_tensor({3}, 2) + random_tensor({3}, 3)), 1e-15);
}

TEST(GraphWalk, HoldsNoLeafAndNoEndThatNoNodeNeeds) {
  const LiveBytes bytes;
  GraphLeaves begins;
  GraphEnd end;
  const int64_t before = bytes.now();
  {
    const at::Tensor x = begins.add(random_tensor({1024}, 1), true);
    end = GraphEnd::of(x + x);  // a sum needs neither its terms nor itself
  }
  EXPECT_EQ(bytes.now(), before);
  std::vector<at::Tensor> found(1);
  const at::NoGradGuard no_graph;
  walk_graph({end}, {random_tensor({1024}, 2)}, begins, false, found);
  EXPECT_LE(largest_difference(found[0], 2 * random_tensor({1024}, 2)), 1e-15);
}

/// Walks a graph of its own while an engine goes back.
struct Inner : torch::autograd::Function<Inner> {
  static at::Tensor forward(torch::autograd::AutogradContext* saved, const at::Tensor& x) {
    saved->save_for_backward({x});
    return x * x * x;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* saved,
                                                 const torch::autograd::variable_list& gradients) {
    GraphLeaves begins;
    const at::Tensor leaf = begins.add(saved->get_saved_variables()[0], true);
    at::Tensor y;
    {
      const at::AutoGradMode with_graph(true);
      y = leaf * leaf * leaf;
    }
    std::vector<at::Tensor> found(1);
    walk_graph({GraphEnd::of(y)}, {gradients[0]}, begins, false, found);
    return {found[0]};
  }
};

TEST(GraphWalk, WorksInsideOfAnEngineThatGoesBackToChosenTensors) {
  const at::Tensor x = random_tensor({4}, 1).set_requires_grad(true);
  const at::Tensor y = Inner::apply(x * 2);
  const at::Tensor slope = random_tensor({4}, 2);
  const at::Tensor expected = 24 * x.detach().square() * slope;
  EXPECT_LE(largest_difference(torch::autograd::grad({y}, {x}, {slope}, /*retain_graph=*/true)[0], expected), 1e-12);
  y.backward(slope);
  EXPECT_LE(largest_difference(x.grad(), expected), 1e-12);
}

}  // namespace
}  // namespace weft
