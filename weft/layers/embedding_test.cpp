#include "weft/layers/embedding.h"

#include "tests/support/layers/compare_gradients.h"
#include "weft/layers/linear.h"

namespace weft {
namespace {

/// Row by row, by hand.
at::Tensor plain_gradient(const at::Tensor& ids, const at::Tensor& dy, int64_t entries, int64_t padding) {
  const at::Tensor gradient = at::zeros({entries, dy.size(1)}, dy.options());
  for (int64_t i = 0; i < ids.size(0); ++i) {
    const int64_t id = ids[i].item<int64_t>();
    if (id != padding) gradient[id] += dy[i];
  }
  return gradient;
}

TEST(Embedding, RowsAreThoseOfTheIdsAndGradientsGoBackToThem) {
  for (const int64_t padding : {-1, 3}) {
    const ParameterPtr table = random_parameter({6, 4}, 1);
    const at::Tensor ids = random_ids(40, 6, 2);  // each about seven times
    const at::Tensor y = embed(ids, table, padding);
    EXPECT_TRUE(y.equal(table->value.detach().index_select(0, ids)));
    const at::Tensor dy = random_tensor({40, 4}, 3);
    y.backward(dy);
    const at::Tensor expected = plain_gradient(ids, dy, 6, padding);
    EXPECT_LE(relative_difference(table->gradient, expected), 1e-13) << "the first gradient";
    embed(ids, table, padding).backward(dy);
    EXPECT_LE(relative_difference(table->gradient, 2 * expected), 1e-13) << "added to another";
  }
}

TEST(Embedding, EntriesThatNobodyAskedForHaveZeroGradient) {
  const ParameterPtr table = random_parameter({1000, 4}, 1);
  embed(at::tensor({int64_t{7}, int64_t{7}}), table).sum().backward();
  EXPECT_EQ(table->gradient.sum().item<double>(), 8);
  EXPECT_EQ(table->gradient[7].sum().item<double>(), 8);
}

TEST(Embedding, ATableThatIsAlsoTheHeadGetsBothGradients) {
  for (const bool is_deferred : {false, true}) {
    const ParameterPtr table = random_parameter({6, 4}, 1);
    const at::Tensor ids = random_ids(10, 6, 2);
    const at::Tensor leaf = table->value.detach().clone().set_requires_grad(true);
    at::matmul(at::tanh(leaf.index_select(0, ids)), leaf.t()).square().sum().backward();
    WeightGradients deferred;
    linear(at::tanh(embed(ids, table)), table, {}, {.deferred = is_deferred ? &deferred : nullptr})
        .square()
        .sum()
        .backward();
    deferred.run();
    EXPECT_LE(relative_difference(table->gradient, leaf.grad()), 1e-12);
  }
}

TEST(Embedding, AFrozenTableGetsNone) {
  const ParameterPtr table = random_parameter({6, 4}, 1, /*is_trainable=*/false);
  const at::Tensor y = embed(random_ids(10, 6, 2), table);
  EXPECT_FALSE(y.requires_grad());
  EXPECT_FALSE(table->gradient.defined());
}

TEST(Embedding, Bfloat16AddsUpInTheGradientsType) {
  const ParameterPtr table = parameter_of(random_tensor({3, 2}, 1).to(at::kBFloat16));
  table->gradient_type = at::kFloat;
  const at::Tensor ids = at::zeros({1000}, at::kLong);
  for (int round = 1; round <= 2; ++round) {
    embed(ids, table).backward(at::ones({1000, 2}, at::kBFloat16));
    EXPECT_EQ(table->gradient[0][0].item<float>(), 1000.0F * static_cast<float>(round));
    EXPECT_EQ(table->gradient[1][0].item<float>(), 0);
  }
}

TEST(Embedding, NoIdsGiveNoRowsAndGradientsOfZero) {
  const ParameterPtr table = random_parameter({6, 4}, 1);
  for (int round = 0; round < 2; ++round) {
    const at::Tensor y = embed(at::empty({0}, at::kLong), table, 3);
    EXPECT_EQ(y.sizes(), (std::vector<int64_t>{0, 4}));
    y.sum().backward();
    EXPECT_EQ(table->gradient.abs().sum().item<double>(), 0);
  }
}

TEST(Embedding, PlacedRowsReplaceOthersAndTakeTheirGradients) {
  const at::Tensor positions = at::tensor({int64_t{4}, int64_t{0}, int64_t{2}});
  const at::Tensor x = random_tensor({6, 3}, 1).set_requires_grad(true);
  const at::Tensor rows = random_tensor({3, 3}, 2).set_requires_grad(true);
  const at::Tensor y = place_rows(x, positions, rows);
  const std::vector<at::Tensor> expected = {rows[1], x[1], rows[2], x[3], rows[0], x[5]};
  EXPECT_TRUE(y.equal(at::stack(expected)));
  const at::Tensor dy = random_tensor({6, 3}, 3);
  y.backward(dy);
  EXPECT_TRUE(rows.grad().equal(dy.index_select(0, positions)));
  EXPECT_TRUE(x.grad().equal(dy.index_fill(0, positions, 0)));
}

TEST(Embedding, PlacingNoRowsChangesNothing) {
  const at::Tensor x = random_tensor({6, 3}, 1).set_requires_grad(true);
  const at::Tensor rows = at::empty({0, 3}, at::kDouble).set_requires_grad(true);
  const at::Tensor y = place_rows(x, at::empty({0}, at::kLong), rows);
  EXPECT_TRUE(y.equal(x));
  y.sum().backward();
  EXPECT_TRUE(x.grad().equal(at::ones_like(x)));
  EXPECT_EQ(rows.grad().sizes(), rows.sizes());
}

TEST(Embedding, PlacedRowsOfAnotherTypeAreConverted) {
  const at::Tensor x = at::zeros({2, 3}, at::kBFloat16).set_requires_grad(true);
  const at::Tensor rows = at::ones({1, 3}, at::kFloat).set_requires_grad(true);
  const at::Tensor y = place_rows(x, at::tensor({int64_t{1}}), rows);
  EXPECT_EQ(y.scalar_type(), at::kBFloat16);
  y.sum().backward();
  EXPECT_EQ(rows.grad().scalar_type(), at::kFloat);
}

}  // namespace
}  // namespace weft
