#include "weft/layers/moe.h"

#include <mutex>

#include <ATen/core/grad_mode.h>

#include "tests/support/layers/compare_gradients.h"
#include "weft/comm/run_ranks.h"

namespace weft {
namespace {

at::Tensor plain_experts(const at::Tensor& x, const at::Tensor& weight, const std::vector<int64_t>& counts) {
  std::vector<at::Tensor> parts;
  int64_t row = 0;
  for (size_t expert = 0; expert < counts.size(); ++expert) {
    parts.push_back(at::matmul(x.narrow(0, row, counts[expert]), weight[static_cast<int64_t>(expert)].t()));
    row += counts[expert];
  }
  return at::cat(parts);
}

TEST(Moe, EveryRowMeetsItsExpert) {
  const std::vector<std::vector<int64_t>> all_counts = {
      {2, 3, 1, 4}, {0, 0, 10, 0}, {10, 0, 0, 0}, {0, 5, 0, 5}, {0, 0, 0, 10}};
  for (const auto& counts : all_counts) {
    const ParameterPtr weight = random_parameter({4, 6, 5}, 2);
    for (const at::Tensor& x : {random_tensor({10, 5}, 1), random_tensor({5, 10}, 1).t()}) {
      expect_same(
          x, {weight}, [&](const auto& rows) { return expert_linear(rows, weight, counts, {}); },
          [&](const auto& rows, const auto& w) { return plain_experts(rows, w[0], counts); });
    }
  }
}

TEST(Moe, NoRowsAtAllGiveGradientsOfZero) {
  const ParameterPtr weight = random_parameter({4, 6, 5}, 2);
  const at::Tensor x = at::empty({0, 5}, at::kDouble).set_requires_grad(true);
  const at::Tensor y = expert_linear(x, weight, std::vector<int64_t>{0, 0, 0, 0}, {});
  EXPECT_EQ(y.sizes(), (std::vector<int64_t>{0, 6}));
  y.sum().backward();
  EXPECT_EQ(x.grad().sizes(), x.sizes());
  EXPECT_EQ(weight->gradient.abs().sum().item<double>(), 0);
}

TEST(Moe, ExpertGradientsAddUpAndMayBeDeferred) {
  const std::vector<int64_t> counts = {3, 0, 7, 0};
  const ParameterPtr weight = random_parameter({4, 6, 5}, 2);
  const at::Tensor x = random_tensor({10, 5}, 1);
  const at::Tensor dy = random_tensor({10, 6}, 3);
  expert_linear(x, weight, counts, {}).backward(dy);
  const at::Tensor once = weight->gradient.clone();
  WeightGradients deferred;
  expert_linear(x, weight, counts, {.deferred = &deferred}).backward(dy);
  EXPECT_TRUE(weight->gradient.equal(once));
  deferred.run();
  EXPECT_LE(relative_difference(weight->gradient, 2 * once), 1e-13);
}

MoeLayer layer_of(int64_t experts, int64_t chosen, bool normalizes, int64_t width = 6, int64_t inner = 5) {
  return {.experts_per_token = chosen,
          .normalizes_weights = normalizes,
          .router = random_parameter({experts, width}, 11),
          .gate_up = random_parameter({experts, 2 * inner, width}, 12),
          .down = random_parameter({experts, width, inner}, 13)};
}

struct PlainMoe {
  at::Tensor y;
  at::Tensor balance;
};

/// Every expert on every row, times a weight that is zero where it was not chosen.
PlainMoe plain_moe(const at::Tensor& x, const std::vector<at::Tensor>& w, int64_t chosen, bool normalizes) {
  const int64_t experts = w[0].size(0);
  const at::Tensor probabilities = at::softmax(at::matmul(x, w[0].t()), -1);
  const at::Tensor last_chosen = std::get<0>(probabilities.topk(chosen, -1)).narrow(1, chosen - 1, 1);
  const at::Tensor is_chosen = (probabilities >= last_chosen).to(x.scalar_type()).detach();
  at::Tensor weights = probabilities * is_chosen;
  if (normalizes) weights = weights / weights.sum(-1, true);
  at::Tensor y = at::zeros_like(x);
  for (int64_t expert = 0; expert < experts; ++expert) {
    const auto halves = at::matmul(x, w[1][expert].t()).chunk(2, -1);
    const at::Tensor inner = halves[0] * at::sigmoid(halves[0]) * halves[1];
    y = y + at::matmul(inner, w[2][expert].t()) * weights.narrow(1, expert, 1);
  }
  const at::Tensor share = is_chosen.mean(0) / static_cast<double>(chosen);
  return {y, (share * probabilities.mean(0)).sum() * static_cast<double>(experts)};
}

TEST(Moe, TheLayerEqualsAllExpertsOnAllRowsMasked) {
  for (const bool normalizes : {false, true}) {
    for (const int64_t chosen : {1, 2, 5}) {
      for (const int64_t rows : {1, 9, 40}) {
        SCOPED_TRACE(testing::Message() << rows << " rows, " << chosen << " of 5 experts");
        const MoeLayer layer = layer_of(5, chosen, normalizes);
        expect_same(
            random_tensor({rows, 6}, 1), {layer.router, layer.gate_up, layer.down},
            [&](const auto& x) { return layer.forward(x, {}); },
            [&](const auto& x, const auto& w) { return plain_moe(x, w, chosen, normalizes).y; }, 1e-11);
      }
    }
  }
}

TEST(Moe, TheBalancingLossIsMinimisedBesides) {
  constexpr double kScale = 0.7;
  const MoeLayer layer = layer_of(5, 2, true);
  std::vector<at::Tensor> losses;
  const RunContext context{.balance_scale = kScale, .balance_losses = &losses};
  const at::Tensor x = random_tensor({9, 6}, 1).set_requires_grad(true);
  const at::Tensor x_plain = x.detach().clone().set_requires_grad(true);
  std::vector<at::Tensor> weights;
  for (const ParameterPtr& p : {layer.router, layer.gate_up, layer.down})
    weights.push_back(p->value.detach().clone().set_requires_grad(true));
  const at::Tensor dy = random_tensor({9, 6}, 4);
  layer.forward(x, context).backward(dy);
  const PlainMoe plain = plain_moe(x_plain, weights, 2, true);
  ((plain.y * dy).sum() + kScale * plain.balance).backward();
  ASSERT_EQ(losses.size(), 1u);
  EXPECT_LE(relative_difference(losses[0], plain.balance), 1e-12);
  EXPECT_LE(relative_difference(x.grad(), x_plain.grad()), 1e-11);
  EXPECT_LE(relative_difference(layer.router->gradient, weights[0].grad()), 1e-11);
  EXPECT_LE(relative_difference(layer.down->gradient, weights[2].grad()), 1e-11);
}

TEST(Moe, TheBalancingLossOfSeveralRanksIsThatOfTheirRowsTogether) {
  constexpr double kScale = 0.7;
  const std::vector<int64_t> begins = {0, 5, 5, 14};  // the second rank has none
  for (const int64_t chosen : {1, 2}) {
    const MoeLayer whole = layer_of(5, chosen, false);
    const at::Tensor all = random_tensor({begins.back(), 6}, 1);
    const at::Tensor dy = random_tensor({begins.back(), 6}, 4);
    const at::Tensor x = all.clone().set_requires_grad(true);
    std::vector<at::Tensor> expected;
    whole.forward(x, {.balance_scale = kScale, .balance_losses = &expected}).backward(dy);

    std::mutex guard;
    double loss = 0;
    const at::Tensor router = at::zeros_like(whole.router->value);
    const at::Tensor down = at::zeros_like(whole.down->value);
    const auto error = run_ranks({.size = 3}, [&](World& world) {
      const auto rank = static_cast<size_t>(world.rank());
      const int64_t rows = begins[rank + 1] - begins[rank];
      const MoeLayer layer = layer_of(5, chosen, false);
      const at::Tensor mine = all.narrow(0, begins[rank], rows).clone().set_requires_grad(true);
      std::vector<at::Tensor> losses;
      const Group group = world.all();
      layer.forward(mine, {.balance_scale = kScale, .balance_losses = &losses, .balance = &group})
          .backward(dy.narrow(0, begins[rank], rows));
      const at::NoGradGuard no_graph;
      const std::lock_guard lock(guard);
      ASSERT_EQ(losses.size(), 1u);
      loss += losses[0].item<double>();
      EXPECT_EQ(losses[0].item<double>() == 0, rows == 0);
      router.add_(layer.router->gradient);
      down.add_(layer.down->gradient);
      ASSERT_EQ(mine.grad().sizes(), mine.sizes());
      if (rows > 0) {
        EXPECT_LE(relative_difference(mine.grad(), x.grad().narrow(0, begins[rank], rows)), 1e-12);
      }
    });
    EXPECT_FALSE(error) << error->message();
    EXPECT_NEAR(loss, expected.at(0).item<double>(), 1e-12);
    EXPECT_LE(relative_difference(router, whole.router->gradient), 1e-12);
    EXPECT_LE(relative_difference(down, whole.down->gradient), 1e-12);
  }
}

TEST(Moe, TheLayerWithoutRowsWorksBothWays) {
  for (const double scale : {0.0, 0.1}) {
    const MoeLayer layer = layer_of(5, 2, true);
    const at::Tensor x = at::empty({0, 6}, at::kDouble).set_requires_grad(true);
    const at::Tensor y = layer.forward(x, {.balance_scale = scale});
    EXPECT_EQ(y.sizes(), x.sizes());
    y.sum().backward();
    EXPECT_EQ(x.grad().sizes(), x.sizes());
    for (const ParameterPtr& p : {layer.router, layer.gate_up, layer.down}) {
      ASSERT_TRUE(p->gradient.defined());
      EXPECT_EQ(p->gradient.abs().sum().item<double>(), 0);
    }
  }
}

TEST(Moe, RoutingSortsChoicesByExpert) {
  const MoeLayer layer = layer_of(5, 2, false);
  const Routing routing = layer.route(random_tensor({9, 6}, 1), {});
  const at::Tensor sorted = routing.experts.flatten().index_select(0, routing.order);
  int64_t at_choice = 0;
  for (size_t expert = 0; expert < 5; ++expert) {
    for (int64_t i = 0; i < routing.counts.numbers()[expert]; ++i)
      EXPECT_EQ(sorted[at_choice++].item<int64_t>(), static_cast<int64_t>(expert));
  }
  EXPECT_EQ(at_choice, 18);
}

TEST(Moe, Bfloat16WithFloatGradientsIsNearTheExactResult) {
  const std::vector<int64_t> counts = {30, 0, 34};
  const ParameterPtr weight = parameter_of(random_tensor({3, 16, 24}, 2).to(at::kBFloat16));
  weight->gradient_type = at::kFloat;
  const at::Tensor x = random_tensor({64, 24}, 1).to(at::kBFloat16).set_requires_grad(true);
  const at::Tensor dy = random_tensor({64, 16}, 3).to(at::kBFloat16);
  const at::Tensor y = expert_linear(x, weight, counts, {});
  y.backward(dy);
  const at::Tensor x_exact = x.detach().to(at::kDouble).set_requires_grad(true);
  const at::Tensor w_exact = weight->value.detach().to(at::kDouble).set_requires_grad(true);
  const at::Tensor expected = plain_experts(x_exact, w_exact, counts);
  expected.backward(dy.to(at::kDouble));
  EXPECT_LE(relative_difference(y, expected), 0.01);
  EXPECT_LE(relative_difference(x.grad(), x_exact.grad()), 0.01);
  EXPECT_EQ(weight->gradient.scalar_type(), at::kFloat);
  EXPECT_LE(relative_difference(weight->gradient, w_exact.grad()), 0.01);
}

}  // namespace
}  // namespace weft
