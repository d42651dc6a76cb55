#include "weft/layers/loss.h"

#include "weft/layers/compare_gradients.h"

namespace weft {
namespace {

at::Tensor plain_loss(const at::Tensor& logits, const at::Tensor& targets) {
  return -at::log(at::softmax(logits, 1)).gather(1, targets.unsqueeze(1)).sum();
}

TEST(Loss, IsTheSumOfCrossEntropies) {
  for (const int64_t rows : {1, 5, 300}) {
    for (const int64_t width : {1, 2, 17, 400}) {
      const at::Tensor targets = random_ids(rows, width, 2);
      expect_same(
          2 * random_tensor({rows, width}, 1), {}, [&](const auto& x) { return cross_entropy_sum(x.clone(), targets); },
          [&](const auto& x, const auto&) { return plain_loss(x, targets); }, 1e-11);
    }
  }
}

TEST(Loss, LargeLogitsStayFinite) {
  const at::Tensor logits = at::tensor({1e4, -1e4, 0.0, 1e4}).view({2, 2}).to(at::kFloat).set_requires_grad(true);
  const at::Tensor loss = cross_entropy_sum(logits.clone(), at::tensor({int64_t{1}, int64_t{1}}));
  EXPECT_EQ(loss.item<float>(), 2e4F);
  loss.backward();
  EXPECT_TRUE(logits.grad().equal(at::tensor({1.0F, -1.0F, 0.0F, 0.0F}).view({2, 2})));
}

TEST(Loss, TheGradientIsScaledByWhatIsMadeOfTheLoss) {
  const at::Tensor x = random_tensor({6, 9}, 1).set_requires_grad(true);
  const at::Tensor plain = x.detach().clone().set_requires_grad(true);
  const at::Tensor targets = random_ids(6, 9, 2);
  (cross_entropy_sum(x.clone(), targets) / 7).square().backward();
  (plain_loss(plain, targets) / 7).square().backward();
  EXPECT_LE(relative_difference(x.grad(), plain.grad()), 1e-12);
}

TEST(Loss, NoRowsHaveNoLoss) {
  const at::Tensor x = at::empty({0, 9}, at::kDouble).set_requires_grad(true);
  const at::Tensor loss = cross_entropy_sum(x.clone(), at::empty({0}, at::kLong));
  EXPECT_EQ(loss.item<double>(), 0);
  loss.backward();
  EXPECT_EQ(x.grad().sizes(), x.sizes());
}

TEST(Loss, HalfPrecisionIsSummedInFloat) {
  const at::Tensor x = random_tensor({3000, 40}, 1).to(at::kBFloat16).set_requires_grad(true);
  const at::Tensor exact = x.detach().to(at::kDouble).set_requires_grad(true);
  const at::Tensor targets = random_ids(3000, 40, 2);
  const at::Tensor loss = cross_entropy_sum(x.clone(), targets);
  EXPECT_EQ(loss.scalar_type(), at::kFloat);
  const at::Tensor expected = plain_loss(exact, targets);
  EXPECT_LE(relative_difference(loss, expected), 1e-5);
  loss.backward();
  expected.backward();
  EXPECT_EQ(x.grad().scalar_type(), at::kBFloat16);
  EXPECT_LE(relative_difference(x.grad(), exact.grad()), 0.005);
}

}  // namespace
}  // namespace weft
