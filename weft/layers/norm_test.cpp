#include "weft/layers/norm.h"

#include "tests/support/layers/compare_gradients.h"

namespace weft {
namespace {

constexpr double kEpsilon = 1e-3;

at::Tensor plain_rms(const at::Tensor& x, const at::Tensor& weight) {
  return x * at::rsqrt(x.square().mean(-1, true) + kEpsilon) * weight;
}

at::Tensor plain_layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  const at::Tensor centred = x - x.mean(-1, true);
  return centred * at::rsqrt(centred.square().mean(-1, true) + kEpsilon) * weight + bias;
}

at::Tensor plain_heads(const at::Tensor& qkv, const std::vector<at::Tensor>& weights, int64_t heads, int64_t kv_heads) {
  const auto parts =
      qkv.unflatten(1, {heads + 2 * kv_heads, weights[0].size(0)}).split_with_sizes({heads, kv_heads, kv_heads}, 1);
  return at::cat({plain_rms(parts[0], weights[0]), plain_rms(parts[1], weights[1]), parts[2]}, 1).flatten(1);
}

TEST(Norm, RmsNormEqualsItsFormula) {
  for (const int64_t rows : {1, 2, 7, 300}) {
    for (const int64_t width : {1, 3, 16, 129}) {
      SCOPED_TRACE(testing::Message() << rows << " x " << width);
      const ParameterPtr weight = random_parameter({width}, 2);
      expect_same(
          random_tensor({rows, width}, 1), {weight}, [&](const auto& x) { return rms_norm(x, weight, kEpsilon); },
          [](const auto& x, const auto& w) { return plain_rms(x, w[0]); });
    }
  }
}

TEST(Norm, LayerNormEqualsItsFormula) {
  for (const int64_t rows : {1, 7, 300}) {
    const ParameterPtr weight = random_parameter({33}, 2);
    const ParameterPtr bias = random_parameter({33}, 3);
    expect_same(
        random_tensor({rows, 33}, 1), {weight, bias},
        [&](const auto& x) { return layer_norm(x, weight, bias, kEpsilon); },
        [](const auto& x, const auto& w) { return plain_layer_norm(x, w[0], w[1]); });
  }
}

TEST(Norm, HeadsAreNormedEachAndValuesStay) {
  struct Counts {
    int64_t heads, kv_heads, head_dim;
  };
  for (const Counts c : {Counts{1, 1, 4}, Counts{4, 2, 6}, Counts{6, 1, 10}, Counts{3, 3, 8}}) {
    SCOPED_TRACE(testing::Message() << c.heads << " heads, " << c.kv_heads << " of keys");
    const ParameterPtr q = random_parameter({c.head_dim}, 2);
    const ParameterPtr k = random_parameter({c.head_dim}, 3);
    expect_same(
        random_tensor({9, (c.heads + 2 * c.kv_heads) * c.head_dim}, 1), {q, k},
        [&](const auto& x) { return norm_heads(x, q, k, c.heads, c.kv_heads, kEpsilon); },
        [&](const auto& x, const auto& w) { return plain_heads(x, w, c.heads, c.kv_heads); });
  }
}

TEST(Norm, RowsWithGapsAreNormedAlike) {
  const ParameterPtr weight = random_parameter({24}, 2);
  const ParameterPtr bias = random_parameter({24}, 3);
  const at::Tensor dense = random_tensor({5, 24}, 1);
  EXPECT_LE(relative_difference(rms_norm(with_gaps(dense), weight, kEpsilon), rms_norm(dense, weight, kEpsilon)),
            1e-14);
  for (const at::Tensor& x : {dense.t().contiguous().t(), with_gaps(dense)}) {
    expect_same(
        x, {weight}, [&](const auto& rows) { return rms_norm(rows, weight, kEpsilon); },
        [](const auto& rows, const auto& w) { return plain_rms(rows, w[0]); });
    expect_same(
        x, {weight, bias}, [&](const auto& rows) { return layer_norm(rows, weight, bias, kEpsilon); },
        [](const auto& rows, const auto& w) { return plain_layer_norm(rows, w[0], w[1]); });
  }
}

TEST(Norm, GradientsThatAreOneNumberForAllAreUnderstood) {
  const ParameterPtr weight = random_parameter({8}, 2);
  const at::Tensor x = random_tensor({5, 8}, 1).set_requires_grad(true);
  const at::Tensor plain = x.detach().clone().set_requires_grad(true);
  rms_norm(x, weight, kEpsilon).sum().backward();
  plain_rms(plain, weight->value.detach()).sum().backward();
  EXPECT_LE(relative_difference(x.grad(), plain.grad()), 1e-12);
}

TEST(Norm, ManyDimsAreRowsToo) {
  const ParameterPtr weight = random_parameter({8}, 2);
  expect_same(
      random_tensor({2, 3, 8}, 1), {weight}, [&](const auto& x) { return rms_norm(x, weight, kEpsilon); },
      [](const auto& x, const auto& w) { return plain_rms(x, w[0]); });
}

TEST(Norm, NoRowsGiveNoRowsAndGradientsOfZero) {
  const ParameterPtr weight = random_parameter({8}, 2);
  const ParameterPtr bias = random_parameter({8}, 3);
  for (int round = 0; round < 2; ++round) {
    const at::Tensor x = at::empty({0, 8}, at::kDouble).set_requires_grad(true);
    const at::Tensor y = layer_norm(rms_norm(x, weight, kEpsilon), weight, bias, kEpsilon);
    EXPECT_EQ(y.size(0), 0);
    y.sum().backward();
    EXPECT_EQ(x.grad().sizes(), x.sizes());
    EXPECT_EQ(weight->gradient.abs().sum().item<double>(), 0);
    EXPECT_EQ(bias->gradient.abs().sum().item<double>(), 0);
  }
  const at::Tensor qkv = at::empty({0, 32}, at::kDouble).set_requires_grad(true);
  norm_heads(qkv, weight, bias, 2, 1, kEpsilon).sum().backward();
  EXPECT_EQ(qkv.grad().sizes(), qkv.sizes());
}

TEST(Norm, FrozenWeightsGetNoGradient) {
  const ParameterPtr frozen = random_parameter({8}, 2, /*is_trainable=*/false);
  const ParameterPtr bias = random_parameter({8}, 3);
  expect_same(
      random_tensor({4, 8}, 1), {frozen}, [&](const auto& x) { return rms_norm(x, frozen, kEpsilon); },
      [](const auto& x, const auto& w) { return plain_rms(x, w[0]); });
  expect_same(
      random_tensor({4, 8}, 1), {frozen, bias}, [&](const auto& x) { return layer_norm(x, frozen, bias, kEpsilon); },
      [](const auto& x, const auto& w) { return plain_layer_norm(x, w[0], w[1]); });
}

TEST(Norm, AnInputWithoutGradientStillGivesTheWeightIts) {
  const ParameterPtr weight = random_parameter({8}, 2);
  const at::Tensor x = random_tensor({4, 8}, 1);
  rms_norm(x, weight, kEpsilon).sum().backward();
  const at::Tensor expected = (x * at::rsqrt(x.square().mean(-1, true) + kEpsilon)).sum(0);
  EXPECT_LE(relative_difference(weight->gradient, expected), 1e-12);
}

TEST(Norm, GradientsOfSeveralBackwardsAddUp) {
  const ParameterPtr weight = random_parameter({8}, 2);
  const at::Tensor x = random_tensor({4, 8}, 1);
  rms_norm(x, weight, kEpsilon).sum().backward();
  const at::Tensor once = weight->gradient.clone();
  rms_norm(x, weight, kEpsilon).sum().backward();
  EXPECT_LE(relative_difference(weight->gradient, 2 * once), 1e-12);
}

TEST(Norm, Bfloat16IsNormedInFloat) {
  const at::Tensor x = random_tensor({64, 256}, 1).to(at::kBFloat16);
  const ParameterPtr weight = parameter_of(random_tensor({256}, 2).to(at::kBFloat16));
  const ParameterPtr exact = parameter_of(weight->value.detach().to(at::kDouble));
  const at::Tensor x_low = x.clone().set_requires_grad(true);
  const at::Tensor x_exact = x.to(at::kDouble).set_requires_grad(true);
  const at::Tensor found = rms_norm(x_low, weight, kEpsilon);
  const at::Tensor expected = rms_norm(x_exact, exact, kEpsilon);
  EXPECT_EQ(found.scalar_type(), at::kBFloat16);
  EXPECT_LE(relative_difference(found, expected), 0.01);
  const at::Tensor gradient = random_tensor({64, 256}, 3).to(at::kBFloat16);
  found.backward(gradient);
  expected.backward(gradient.to(at::kDouble));
  EXPECT_LE(relative_difference(x_low.grad(), x_exact.grad()), 0.01);
  EXPECT_LE(relative_difference(weight->gradient, exact->gradient), 0.01);
}

}  // namespace
}  // namespace weft
