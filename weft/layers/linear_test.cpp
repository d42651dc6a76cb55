#include "weft/layers/linear.h"

#include "tests/support/layers/compare_gradients.h"
#include "tests/support/layers/live_bytes.h"

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

/// Sites of a rank whose rows are followed by another's, counting how often they become whole.
struct FollowedRows {
  at::Tensor others;
  int num_gathered = 0;
  ActivationSites sites;

  explicit FollowedRows(at::Tensor others_in) : others(std::move(others_in)) {
    sites.divides_rows = true;
    sites.enter = [this](const at::Tensor& own) {
      ++num_gathered;
      return at::cat({own, others});
    };
  }
  FollowedRows(const FollowedRows&) = delete;
  FollowedRows& operator=(const FollowedRows&) = delete;
};

TEST(Linear, EnteredRowsBecomeWholeAgainWhereTheWeightIsTrained) {
  for (const bool is_trained : {false, true}) {
    for (const bool is_deferred : {false, true}) {
      for (const bool picks : {false, true}) {
        SCOPED_TRACE(testing::Message() << is_trained << is_deferred << picks);
        FollowedRows rows(random_tensor({4, 7}, 5));
        const ParameterPtr weight = random_parameter({5, 7}, 2, is_trained);
        const ParameterPtr bias = random_parameter({5}, 3);
        const at::Tensor x = random_tensor({6, 7}, 1).set_requires_grad(true);
        const at::Tensor picked = at::arange(1, 10, 2);
        const ArrangeRows arrange =
            picks ? [&](const at::Tensor& whole) { return whole.index_select(0, picked); } : ArrangeRows();
        WeightGradients deferred;
        const at::Tensor y = entered_linear(
            x, weight, bias, {.deferred = is_deferred ? &deferred : nullptr, .sites = &rows.sites}, arrange);
        EXPECT_EQ(rows.num_gathered, 1);
        const at::Tensor whole = at::cat({x.detach(), rows.others});
        const at::Tensor read = picks ? whole.index_select(0, picked) : whole;
        EXPECT_LE(relative_difference(y, at::linear(read, weight->value, bias->value)), 1e-13);
        const at::Tensor dy = random_tensor(y.sizes(), 4);
        y.backward(dy);
        EXPECT_EQ(rows.num_gathered, is_trained && !is_deferred ? 2 : 1);
        deferred.run();
        EXPECT_EQ(rows.num_gathered, is_trained ? 2 : 1);
        const at::Tensor dread = at::matmul(dy, weight->value.detach());
        const at::Tensor dx = picks ? at::zeros_like(whole).index_copy(0, picked, dread) : dread;
        EXPECT_LE(relative_difference(x.grad(), dx.narrow(0, 0, 6)), 1e-13);
        EXPECT_LE(relative_difference(bias->gradient, dy.sum(0)), 1e-13);
        ASSERT_EQ(weight->gradient.defined(), is_trained);
        if (is_trained) {
          EXPECT_LE(relative_difference(weight->gradient, at::matmul(dy.t(), read)), 1e-13);
        }
      }
    }
  }
}

TEST(Linear, OfEnteredRowsOnlyOwnOnesAreKept) {
  FollowedRows rows(random_tensor({300, 64}, 5));
  const ParameterPtr weight = random_parameter({8, 64}, 2);
  const at::Tensor start = random_tensor({100, 64}, 1).set_requires_grad(true);
  LiveBytes live;
  at::Tensor x = start * 2;
  const at::Tensor y = entered_linear(x, weight, {}, {.sites = &rows.sites});
  x.reset();
  EXPECT_EQ(live.now(), static_cast<int64_t>(y.nbytes() + start.nbytes()));
}

}  // namespace
}  // namespace weft
