#include "weft/layers/loss.h"

#include <mutex>

#include "tests/support/layers/compare_gradients.h"
#include "tests/support/layers/live_bytes.h"
#include "weft/comm/run_ranks.h"
#include "weft/mesh/split.h"

namespace weft::loss_test {
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

/// As torch.nn.functional.cross_entropy smooths, and the square of the normaliser as in ST-MoE.
at::Tensor plain_loss(const at::Tensor& logits, const at::Tensor& targets, const LossSettings& settings) {
  const at::Tensor sums = at::logsumexp(logits, {1});
  const at::Tensor logs = logits - sums.unsqueeze(1);
  const double smooth = settings.label_smoothing;
  return -((1 - smooth) * logs.gather(1, targets.unsqueeze(1)).sum() + smooth * logs.mean(1).sum()) +
         settings.z_loss * sums.square().sum();
}

constexpr LossSettings kSettings[] = {
    {.label_smoothing = 0.1}, {.z_loss = 1e-2}, {.label_smoothing = 0.3, .z_loss = 0.5}};

TEST(Loss, SmoothedTargetsAndTheNormalisersSquareAddToIt) {
  for (const LossSettings& settings : kSettings) {
    for (const int64_t width : {1, 17, 400}) {
      const at::Tensor targets = random_ids(300, width, 2);
      expect_same(
          2 * random_tensor({300, width}, 1), {},
          [&](const auto& x) { return cross_entropy_sum(x.clone(), targets, settings); },
          [&](const auto& x, const auto&) { return plain_loss(x, targets, settings); }, 1e-11);
    }
  }
}

TEST(Loss, RanksThatShareOutTheVocabularySmoothOverAllOfIt) {
  for (const LossSettings& settings : kSettings) {
    const at::Tensor logits = 2 * random_tensor({50, 41}, 1);
    const at::Tensor targets = random_ids(50, 41, 2);
    const at::Tensor whole = logits.clone().set_requires_grad(true);
    const at::Tensor expected = plain_loss(whole, targets, settings);
    expected.backward();
    std::mutex guard;
    const auto error = run_ranks({.size = 3}, [&](World& world) {
      const Range own = Split(41, {3}).part(world.rank());
      const int64_t width = own.end - own.begin;
      const at::Tensor part = logits.narrow(1, own.begin, width).contiguous().detach().set_requires_grad(true);
      const at::Tensor loss = cross_entropy_sum(part.clone(), targets, own.begin, world.all(), settings, 41);
      loss.backward();
      const std::lock_guard lock(guard);
      EXPECT_LE(relative_difference(loss, expected), 1e-12);
      EXPECT_LE(relative_difference(part.grad(), whole.grad().narrow(1, own.begin, width)), 1e-12);
    });
    EXPECT_FALSE(error);
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

TEST(Loss, RanksThatShareOutTheVocabularyGetTheSame) {
  // More elements than fit into one piece, and fewer.
  for (const auto& [rows, width] : {std::pair{700, 401}, std::pair{3, 7}, std::pair{0, 5}}) {
    for (const at::ScalarType type : {at::kDouble, at::kBFloat16}) {
      const at::Tensor logits = (2 * random_tensor({rows, width}, 1)).to(type);
      const at::Tensor targets = random_ids(rows, width, 2);
      const at::Tensor whole = logits.clone().set_requires_grad(true);
      const at::Tensor expected = cross_entropy_sum(whole.clone(), targets);
      (expected / 7).square().backward();
      std::mutex guard;
      const auto error = run_ranks({.size = 3}, [&, rows = rows, width = width](World& world) {
        const Range own = Split(width, {3}).part(world.rank());
        const at::Tensor part =
            logits.narrow(1, own.begin, own.end - own.begin).contiguous().detach().set_requires_grad(true);
        const at::Tensor loss = cross_entropy_sum(part.clone(), targets, own.begin, world.all());
        (loss / 7).square().backward();
        const std::lock_guard lock(guard);
        const double tolerance = type == at::kDouble ? 1e-12 : 1e-6;
        EXPECT_LE(relative_difference(loss, expected), tolerance);
        // Numbers that differ in their last digit may be rounded to neighbours of half precision.
        EXPECT_LE(relative_difference(part.grad(), whole.grad().narrow(1, own.begin, own.end - own.begin)),
                  type == at::kDouble ? 1e-12 : 1.0 / 128);
      });
      EXPECT_FALSE(error);
    }
  }
}

TEST(Loss, APartOfTheVocabularyNeedsNoCopyInHigherPrecision) {
  constexpr int64_t kRows = 4000, kWidth = 500;
  const at::Tensor targets = random_ids(kRows, kWidth, 2);
  const auto error = run_ranks({.size = 1}, [&](World& world) {
    const at::Tensor logits = random_tensor({kRows, kWidth}, 1).to(at::kBFloat16).set_requires_grad(true);
    const at::Tensor fresh = logits.clone();
    LiveBytes live;
    const at::Tensor loss = cross_entropy_sum(fresh, targets, 0, world.all());
    loss.backward();
    EXPECT_LT(live.most(), kRows * kWidth);  // a copy in fp32 has four times as many bytes
    EXPECT_GT(live.most(), 0);
  });
  EXPECT_FALSE(error);
}

}  // namespace
}  // namespace weft::loss_test
