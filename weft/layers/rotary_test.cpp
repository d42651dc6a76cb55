#include "weft/layers/rotary.h"

#include "tests/support/layers/compare_gradients.h"

namespace weft::rotary_test {
namespace {

RotaryTable table_of(int64_t rows, int64_t head_dim) {
  const at::Tensor angles = 3 * random_tensor({rows, head_dim / 2}, 11);
  // Stretched, as some rope scalings do it: then turning back is the transpose, not the inverse.
  return {1.3 * at::cos(angles), 1.3 * at::sin(angles)};
}

/// Pair by pair, as a two-by-two matrix.
at::Tensor plain_rotated(const at::Tensor& heads, const RotaryTable& table) {
  const auto halves = heads.chunk(2, -1);
  const at::Tensor pairs = at::stack({halves[0], halves[1]}, -1).unsqueeze(-1);
  const at::Tensor turn =
      at::stack({at::stack({table.cos, -table.sin}, -1), at::stack({table.sin, table.cos}, -1)}, -2);
  const at::Tensor turned = at::matmul(turn.unsqueeze(1), pairs).squeeze(-1);
  return at::cat({turned.select(-1, 0), turned.select(-1, 1)}, -1);
}

TEST(Rotary, HeadsAreTurnedPairByPair) {
  for (const int64_t head_dim : {2, 6, 16, 40, 128}) {
    for (const int64_t heads : {1, 3}) {
      const RotaryTable table = table_of(7, head_dim);
      expect_same(
          random_tensor({7, heads, head_dim}, 1), {}, [&](const auto& x) { return rotated(x, table); },
          [&](const auto& x, const auto&) { return plain_rotated(x, table); });
    }
  }
}

TEST(Rotary, InPlaceIsTheSameAndTouchesNothingElse) {
  const RotaryTable table = table_of(5, 8);
  const at::Tensor all = random_tensor({5, 6, 8}, 1);
  const at::Tensor before = all.clone();
  rotate_(all.narrow(1, 1, 3), table);
  EXPECT_LE(relative_difference(all.narrow(1, 1, 3), plain_rotated(before.narrow(1, 1, 3), table)), 1e-13);
  EXPECT_TRUE(all.narrow(1, 0, 1).equal(before.narrow(1, 0, 1)));
  EXPECT_TRUE(all.narrow(1, 4, 2).equal(before.narrow(1, 4, 2)));
}

TEST(Rotary, HeadsInGroupsAreTurnedLikeOthers) {
  const RotaryTable table = table_of(5, 8);
  const at::Tensor groups = random_tensor({5, 3, 4, 8}, 1);
  const at::Tensor before = groups.clone();
  rotate_(groups.narrow(2, 0, 3), table);
  const at::Tensor expected = plain_rotated(before.narrow(2, 0, 3).flatten(1, 2), table).unflatten(1, {3, 3});
  EXPECT_LE(relative_difference(groups.narrow(2, 0, 3), expected), 1e-13);
  EXPECT_TRUE(groups.narrow(2, 3, 1).equal(before.narrow(2, 3, 1)));
}

TEST(Rotary, BackIsTheTransposedTurn) {
  const RotaryTable table = table_of(5, 8);
  const at::Tensor x = random_tensor({5, 2, 8}, 1);
  const at::Tensor y = random_tensor({5, 2, 8}, 2);
  const at::Tensor back = y.clone();
  rotate_(back, table, /*back=*/true);
  const double forward = (plain_rotated(x, table) * y).sum().item<double>();
  EXPECT_NEAR((x * back).sum().item<double>(), forward, 1e-12 * std::abs(forward));
}

TEST(Rotary, HeadsWithGapsAreTurnedAlike) {
  const RotaryTable table = table_of(5, 8);
  const at::Tensor x = random_tensor({5, 2, 8}, 1);
  const at::Tensor spread = with_gaps(x);
  EXPECT_TRUE(rotated(spread, table).equal(rotated(x, table)));
  const at::Tensor turned = at::stack({x, x}, -1);
  rotate_(turned.select(-1, 0), table);
  EXPECT_TRUE(turned.select(-1, 0).equal(rotated(x, table)));
  EXPECT_TRUE(turned.select(-1, 1).equal(x));
}

TEST(Rotary, TablesThatAreRowsOfAnotherAreUnderstood) {
  const RotaryTable table = table_of(9, 8);
  const at::Tensor x = random_tensor({4, 2, 8}, 1);
  EXPECT_LE(relative_difference(rotated(x, table.rows(3, 4)),
                                plain_rotated(x, {table.cos.narrow(0, 3, 4), table.sin.narrow(0, 3, 4)})),
            1e-13);
  const RotaryTable gaps{with_gaps(table.cos), with_gaps(table.sin)};
  EXPECT_TRUE(rotated(x, gaps.rows(3, 4)).equal(rotated(x, table.rows(3, 4))));
}

TEST(Rotary, NoRowsStayNone) {
  const at::Tensor x = at::empty({0, 2, 8}, at::kDouble).set_requires_grad(true);
  rotated(x, table_of(0, 8)).sum().backward();
  EXPECT_EQ(x.grad().sizes(), x.sizes());
}

TEST(Rotary, Bfloat16IsTurnedWithTheTablesPrecision) {
  const RotaryTable exact = table_of(50, 64);
  const RotaryTable table{exact.cos.to(at::kFloat), exact.sin.to(at::kFloat)};
  const at::Tensor x = random_tensor({50, 4, 64}, 1).to(at::kBFloat16);
  const at::Tensor expected = plain_rotated(x.to(at::kDouble), exact);
  const at::Tensor found = rotated(x, table);
  EXPECT_EQ(found.scalar_type(), at::kBFloat16);
  // Rounded once, at the end.
  EXPECT_LE((found.to(at::kDouble) - expected).abs().div(expected.abs() + 1e-3).max().item<double>(), 1.0 / 256 + 1e-4);
}

}  // namespace
}  // namespace weft::rotary_test
