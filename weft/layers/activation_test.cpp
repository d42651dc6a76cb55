#include "weft/layers/activation.h"

#include <cmath>

#include "tests/support/layers/compare_gradients.h"

namespace weft {
namespace {

at::Tensor plain_swiglu(const at::Tensor& x) {
  const auto halves = x.chunk(2, -1);
  return halves[0] * at::sigmoid(halves[0]) * halves[1];
}

at::Tensor plain_quick_gelu(const at::Tensor& x) {
  return x * at::sigmoid(1.702 * x);
}

TEST(Activation, SwigluEqualsItsFormula) {
  for (const int64_t rows : {1, 5, 200}) {
    for (const int64_t width : {1, 7, 32, 130}) {
      expect_same(3 * random_tensor({rows, 2 * width}, 1), {}, swiglu,
                  [](const auto& x, const auto&) { return plain_swiglu(x); });
    }
  }
}

TEST(Activation, GatesOfUnitsEqualTheirFormula) {
  for (const Activation kind : {Activation::kSilu, Activation::kGelu, Activation::kRelu, Activation::kTanh}) {
    for (const int64_t units : {1, 3, 40}) {
      for (const int64_t unit : {1, 2, 24}) {
        const auto plain = [&](const at::Tensor& x, const auto&) {
          return activate(x.select(-2, 0), kind) * x.select(-2, 1);
        };
        expect_same(
            2 * random_tensor({5, units, 2, unit}, 1), {}, [&](const auto& x) { return gated(x, kind); }, plain);
      }
    }
  }
}

// Of fp32 they are taken apart a stretch at a time, which no bit shows. LibTorch divides more than 32,768 among
// threads.
TEST(Activation, GatesThatAlternateEqualThoseInTwoBlocks) {
  for (const int64_t units : {3, 1000, 5003}) {
    const at::Tensor blocks = 2 * random_tensor({4, 2, units}, 1).to(at::kFloat), dy = blocks.select(1, 0).contiguous();
    const auto gradient = [&](const at::Tensor& x, const auto& made) {
      const at::Tensor leaf = x.detach().set_requires_grad(true);
      const at::Tensor y = made(leaf);
      y.backward(dy.view(y.sizes()));
      return std::pair(y.detach().view(dy.sizes()), leaf.grad());
    };
    const auto [y, dx] = gradient(blocks.transpose(1, 2).contiguous().unsqueeze(-1),
                                  [](const at::Tensor& x) { return gated(x, Activation::kSilu); });
    const auto [expected, expected_dx] = gradient(blocks.flatten(), [&](const at::Tensor& x) {
      const at::Tensor own = x.view(blocks.sizes());
      return at::silu(own.select(1, 0).contiguous()) * own.select(1, 1);
    });
    EXPECT_TRUE(at::equal(y, expected)) << units;
    EXPECT_TRUE(at::allclose(dx.squeeze(-1).transpose(1, 2).flatten(), expected_dx, 1e-6, 1e-6)) << units;
  }
}

TEST(Activation, QuickGeluEqualsItsFormula) {
  for (const int64_t rows : {1, 5, 200}) {
    expect_same(
        3 * random_tensor({rows, 37}, 1), {}, [](const auto& x) { return activate(x, Activation::kQuickGelu); },
        [](const auto& x, const auto&) { return plain_quick_gelu(x); });
  }
}

TEST(Activation, EveryKindIsTheFunctionItIsCalled) {
  const double sqrt_half = std::sqrt(0.5);
  const auto check = [&](Activation kind, const Layer& plain) {
    expect_same(
        2 * random_tensor({6, 11}, 1), {}, [&](const auto& x) { return activate(x, kind); },
        [&](const auto& x, const auto&) { return plain(x); });
  };
  check(Activation::kSilu, [](const auto& x) { return x * at::sigmoid(x); });
  check(Activation::kGelu, [&](const auto& x) { return x * 0.5 * (1 + at::erf(x * sqrt_half)); });
  check(Activation::kGeluTanh,
        [](const auto& x) { return 0.5 * x * (1 + at::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); });
}

TEST(Activation, RowsWithGapsAreTakenAlike) {
  const at::Tensor dense = random_tensor({5, 24}, 1);
  for (const at::Tensor& x : {dense.t().contiguous().t(), with_gaps(dense)}) {
    const Layer quick_gelu = [](const at::Tensor& rows) { return activate(rows, Activation::kQuickGelu); };
    EXPECT_LE(relative_difference(swiglu(x), swiglu(dense)), 1e-14);
    EXPECT_LE(relative_difference(quick_gelu(x), quick_gelu(dense)), 1e-14);
    expect_same(
        x, {}, [](const auto& rows) { return swiglu(rows); },
        [](const auto& rows, const auto&) { return plain_swiglu(rows); });
  }
}

TEST(Activation, GradientsThatAreOneNumberForAllAreUnderstood) {
  const at::Tensor x = random_tensor({5, 8}, 1).set_requires_grad(true);
  const at::Tensor plain = x.detach().clone().set_requires_grad(true);
  (swiglu(x).sum() + activate(x, Activation::kQuickGelu).sum()).backward();
  (plain_swiglu(plain).sum() + plain_quick_gelu(plain).sum()).backward();
  EXPECT_LE(relative_difference(x.grad(), plain.grad()), 1e-12);
}

TEST(Activation, LargeInputsStayFinite) {
  const at::Tensor x = at::tensor({-1e4, -800.0, 0.0, 800.0, 2.0, 2.0, 2.0, 2.0}).view({1, 8});
  for (const auto type : {at::kFloat, at::kDouble}) {
    const at::Tensor typed = x.to(type).set_requires_grad(true);
    const at::Tensor y = swiglu(typed);
    EXPECT_TRUE(y.isfinite().all().item<bool>());
    EXPECT_NEAR(y[0][3].item<double>(), 1600, 1e-3);
    EXPECT_NEAR(y[0][0].item<double>(), 0, 1e-12);
    y.sum().backward();
    EXPECT_TRUE(typed.grad().isfinite().all().item<bool>());
  }
}

TEST(Activation, NoRowsGiveNoRows) {
  const at::Tensor x = at::empty({0, 8}, at::kDouble).set_requires_grad(true);
  const at::Tensor y = swiglu(activate(x, Activation::kQuickGelu));
  EXPECT_EQ(y.sizes(), (std::vector<int64_t>{0, 4}));
  y.sum().backward();
  EXPECT_EQ(x.grad().sizes(), x.sizes());
}

TEST(Activation, FloatAndBfloat16AreAsExactAsTheyCanBe) {
  for (const auto& [type, tolerance] : {std::pair{at::kFloat, 1e-6}, std::pair{at::kBFloat16, 0.01}}) {
    const at::Tensor x = (3 * random_tensor({100, 66}, 1)).to(type).set_requires_grad(true);
    const at::Tensor exact = x.detach().to(at::kDouble).set_requires_grad(true);
    const at::Tensor gradient = random_tensor({100, 33}, 2).to(type);
    const at::Tensor found = swiglu(x);
    EXPECT_EQ(found.scalar_type(), type);
    EXPECT_LE(relative_difference(found, plain_swiglu(exact)), tolerance);
    found.backward(gradient);
    plain_swiglu(exact).backward(gradient.to(at::kDouble));
    EXPECT_LE(relative_difference(x.grad(), exact.grad()), tolerance);
  }
}

}  // namespace
}  // namespace weft
