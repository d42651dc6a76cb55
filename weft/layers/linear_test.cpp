#include "weft/layers/linear.h"

#include "weft/layers/compare_gradients.h"

namespace weft {
namespace {

TEST(Linear, EqualsTheProductWithAndWithoutBias) {
  for (const int64_t rows : {1, 6, 100}) {
    const ParameterPtr weight = random_parameter({5, 7}, 2);
    const ParameterPtr bias = random_parameter({5}, 3);
    expect_same(
        random_tensor({rows, 7}, 1), {weight, bias}, [&](const auto& x) { return linear(x, weight, bias, {}); },
        [](const auto& x, const auto& w) { return at::matmul(x, w[0].t()) + w[1]; });
    expect_same(
        random_tensor({rows, 7}, 1), {weight}, [&](const auto& x) { return linear(x, weight, {}, {}); },
        [](const auto& x, const auto& w) { return at::matmul(x, w[0].t()); });
  }
}

TEST(Linear, AnyOfWeightBiasAndInputMayBeFrozen) {
  for (int which = 0; which < 8; ++which) {
    SCOPED_TRACE(which);
    const ParameterPtr weight = random_parameter({5, 7}, 2, (which & 1) != 0);
    const ParameterPtr bias = random_parameter({5}, 3, (which & 2) != 0);
    const at::Tensor x = random_tensor({6, 7}, 1).set_requires_grad((which & 4) != 0);
    const at::Tensor y = linear(x, weight, bias, {});
    EXPECT_EQ(y.requires_grad(), which != 0);
    if (which == 0) continue;
    const at::Tensor dy = random_tensor({6, 5}, 4);
    y.backward(dy);
    EXPECT_EQ(weight->gradient.defined(), (which & 1) != 0);
    EXPECT_EQ(bias->gradient.defined(), (which & 2) != 0);
    EXPECT_EQ(x.grad().defined(), (which & 4) != 0);
    if (which & 1) {
      EXPECT_LE(relative_difference(weight->gradient, at::matmul(dy.t(), x.detach())), 1e-13);
    }
    if (which & 2) {
      EXPECT_LE(relative_difference(bias->gradient, dy.sum(0)), 1e-13);
    }
    if (which & 4) {
      EXPECT_LE(relative_difference(x.grad(), at::matmul(dy, weight->value.detach())), 1e-13);
    }
  }
}

TEST(Linear, DeferredGradientsComeWhenTheyAreRun) {
  for (const bool has_input_gradient : {false, true}) {
    const ParameterPtr weight = random_parameter({5, 7}, 2);
    const ParameterPtr bias = random_parameter({5}, 3);
    const at::Tensor x = random_tensor({6, 7}, 1).set_requires_grad(has_input_gradient);
    const at::Tensor dy = random_tensor({6, 5}, 4);
    WeightGradients deferred;
    linear(x, weight, bias, {.deferred = &deferred}).backward(dy);
    EXPECT_FALSE(weight->gradient.defined());
    EXPECT_FALSE(bias->gradient.defined());
    EXPECT_EQ(x.grad().defined(), has_input_gradient);
    EXPECT_EQ(deferred.size(), 1u);
    deferred.run();
    EXPECT_EQ(deferred.size(), 0u);
    EXPECT_LE(relative_difference(weight->gradient, at::matmul(dy.t(), x.detach())), 1e-13);
    EXPECT_LE(relative_difference(bias->gradient, dy.sum(0)), 1e-13);
  }
}

TEST(Linear, AFrozenWeightWithATrainableBiasIsDeferredToo) {
  const ParameterPtr weight = random_parameter({5, 7}, 2, /*is_trainable=*/false);
  const ParameterPtr bias = random_parameter({5}, 3);
  const at::Tensor dy = random_tensor({6, 5}, 4);
  WeightGradients deferred;
  linear(random_tensor({6, 7}, 1), weight, bias, {.deferred = &deferred}).backward(dy);
  deferred.run();
  EXPECT_FALSE(weight->gradient.defined());
  EXPECT_LE(relative_difference(bias->gradient, dy.sum(0)), 1e-13);
}

TEST(Linear, InputsAndGradientsWithGapsAreUnderstood) {
  const ParameterPtr weight = random_parameter({5, 7}, 2);
  const ParameterPtr bias = random_parameter({5}, 3);
  const at::Tensor dense = random_tensor({6, 7}, 1);
  for (const at::Tensor& x : {dense.t().contiguous().t(), with_gaps(dense)}) {
    expect_same(
        x, {weight, bias}, [&](const auto& rows) { return with_gaps(linear(rows, weight, bias, {})); },
        [](const auto& rows, const auto& w) { return at::matmul(rows, w[0].t()) + w[1]; });
  }
  const at::Tensor x = dense.clone().set_requires_grad(true);
  bias->gradient = at::Tensor();
  linear(x, weight, bias, {}).sum().backward();
  EXPECT_LE(relative_difference(bias->gradient, at::full({5}, 6.0, at::kDouble)), 1e-13);
}

TEST(Linear, NoRowsGiveGradientsOfZero) {
  const ParameterPtr weight = random_parameter({5, 7}, 2);
  const ParameterPtr bias = random_parameter({5}, 3);
  for (int round = 0; round < 2; ++round) {
    const at::Tensor x = at::empty({0, 7}, at::kDouble).set_requires_grad(true);
    const at::Tensor y = add_bias(linear(x, weight, bias, {}), bias);
    EXPECT_EQ(y.sizes(), (std::vector<int64_t>{0, 5}));
    y.sum().backward();
    EXPECT_EQ(x.grad().sizes(), x.sizes());
    EXPECT_EQ(weight->gradient.abs().sum().item<double>(), 0);
    EXPECT_EQ(bias->gradient.abs().sum().item<double>(), 0);
  }
}

TEST(Linear, AddBiasEqualsASum) {
  const ParameterPtr bias = random_parameter({5}, 3);
  expect_same(
      random_tensor({6, 5}, 1), {bias}, [&](const auto& x) { return add_bias(x, bias); },
      [](const auto& x, const auto& w) { return x + w[0]; });
  const ParameterPtr frozen = random_parameter({5}, 3, /*is_trainable=*/false);
  expect_same(
      random_tensor({6, 5}, 1), {frozen}, [&](const auto& x) { return add_bias(x, frozen); },
      [](const auto& x, const auto& w) { return x + w[0]; });
}

TEST(Linear, Bfloat16IsNearTheExactProduct) {
  const ParameterPtr weight = parameter_of(random_tensor({33, 64}, 2).to(at::kBFloat16));
  weight->gradient_type = at::kFloat;
  const at::Tensor x = random_tensor({20, 64}, 1).to(at::kBFloat16).set_requires_grad(true);
  const at::Tensor dy = random_tensor({20, 33}, 3).to(at::kBFloat16);
  const at::Tensor y = linear(x, weight, {}, {});
  y.backward(dy);
  const auto exact = [](const at::Tensor& t) { return t.detach().to(at::kDouble); };
  EXPECT_LE(relative_difference(y, at::matmul(exact(x), exact(weight->value).t())), 0.01);
  EXPECT_LE(relative_difference(x.grad(), at::matmul(exact(dy), exact(weight->value))), 0.01);
  EXPECT_LE(relative_difference(weight->gradient, at::matmul(exact(dy).t(), exact(x))), 0.01);
  EXPECT_EQ(weight->gradient.scalar_type(), at::kFloat);
}

}  // namespace
}  // namespace weft
