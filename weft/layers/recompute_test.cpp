#include "weft/layers/recompute.h"

#include "tests/support/layers/compare_gradients.h"
#include "weft/layers/linear.h"

namespace weft {
namespace {

struct TwoLayers {
  ParameterPtr first = random_parameter({6, 5}, 1);
  ParameterPtr second = random_parameter({5, 6}, 2);
  int runs = 0;

  at::Tensor run(const at::Tensor& x, const RunContext& context) {
    ++runs;
    return linear(at::tanh(linear(x, first, {}, context)), second, {}, context);
  }
};

TEST(Recompute, GivesTheSameAndRunsTwice) {
  for (const bool has_input_gradient : {false, true}) {
    for (const bool is_deferred : {false, true}) {
      SCOPED_TRACE(testing::Message() << has_input_gradient << is_deferred);
      TwoLayers plain, again;
      WeightGradients deferred;
      const RunContext context{.deferred = is_deferred ? &deferred : nullptr};
      const at::Tensor x = random_tensor({4, 5}, 3).set_requires_grad(has_input_gradient);
      const at::Tensor same = x.detach().clone().set_requires_grad(has_input_gradient);
      const at::Tensor dy = random_tensor({4, 5}, 4);
      const at::Tensor expected = plain.run(x, {});
      const at::Tensor found =
          recomputed([&](const at::Tensor& rows) { return again.run(rows, context); }, same, again.first->value);
      EXPECT_TRUE(found.equal(expected));
      EXPECT_EQ(again.runs, 1);
      expected.backward(dy);
      found.backward(dy);
      EXPECT_EQ(again.runs, 2);
      EXPECT_EQ(again.first->gradient.defined(), !is_deferred);
      deferred.run();
      EXPECT_TRUE(again.first->gradient.equal(plain.first->gradient));
      EXPECT_TRUE(again.second->gradient.equal(plain.second->gradient));
      EXPECT_EQ(same.grad().defined(), has_input_gradient);
      if (has_input_gradient) {
        EXPECT_TRUE(same.grad().equal(x.grad()));
      }
      EXPECT_FALSE(again.first->value.grad().defined());
    }
  }
}

TEST(Recompute, BlocksMayBeChained) {
  TwoLayers plain, again;
  const at::Tensor x = random_tensor({4, 5}, 3);
  const auto block = [&](const at::Tensor& rows) { return again.run(rows, {}); };
  plain.run(plain.run(plain.run(x, {}), {}), {}).sum().backward();
  at::Tensor y = x;
  for (int i = 0; i < 3; ++i) y = recomputed(block, y, again.first->value);
  y.sum().backward();
  EXPECT_EQ(again.runs, 6);
  EXPECT_LE(relative_difference(again.first->gradient, plain.first->gradient), 1e-13);
  EXPECT_LE(relative_difference(again.second->gradient, plain.second->gradient), 1e-13);
}

TEST(Recompute, NoRowsWorkBothWays) {
  TwoLayers layers;
  const at::Tensor x = at::empty({0, 5}, at::kDouble).set_requires_grad(true);
  recomputed([&](const at::Tensor& rows) { return layers.run(rows, {}); }, x, layers.first->value).sum().backward();
  EXPECT_EQ(x.grad().sizes(), x.sizes());
  EXPECT_EQ(layers.first->gradient.abs().sum().item<double>(), 0);
}

TEST(Recompute, AFrozenBlockPassesTheInputsGradient) {
  TwoLayers layers;
  layers.first->value.set_requires_grad(false);
  layers.second->value.set_requires_grad(false);
  const at::Tensor x = random_tensor({4, 5}, 3).set_requires_grad(true);
  const at::Tensor same = x.detach().clone().set_requires_grad(true);
  layers.run(x, {}).sum().backward();
  recomputed([&](const at::Tensor& rows) { return layers.run(rows, {}); }, same, layers.first->value).sum().backward();
  EXPECT_TRUE(same.grad().equal(x.grad()));
  EXPECT_FALSE(layers.first->gradient.defined());
}

}  // namespace
}  // namespace weft
