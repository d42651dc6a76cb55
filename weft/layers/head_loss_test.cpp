#include "weft/layers/head_loss.h"

#include <mutex>

#include <ATen/core/grad_mode.h>

#include "tests/support/layers/compare_gradients.h"
#include "tests/support/layers/live_bytes.h"
#include "weft/comm/run_ranks.h"
#include "weft/layers/loss.h"
#include "weft/mesh/split.h"

namespace weft::head_loss_test {
namespace {

LossFormPtr form_of(int64_t classes, const LossSettings& settings = {}) {
  auto form = c10::make_intrusive<LossForm>();
  form->settings = settings;
  form->num_classes = classes;
  return form;
}

/// Autograd's own, with all logits.
at::Tensor plain_loss(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& targets,
                      const LossSettings& settings) {
  const at::Tensor logits = at::matmul(x, weight.t());
  const at::Tensor sums = at::logsumexp(logits, {1});
  const at::Tensor logs = logits - sums.unsqueeze(1);
  const double smooth = settings.label_smoothing;
  return -((1 - smooth) * logs.gather(1, targets.unsqueeze(1)).sum() + smooth * logs.mean(1).sum()) +
         settings.z_loss * sums.square().sum();
}

TEST(HeadLoss, IsTheLossOfAllLogitsHoweverManyAreThereAtATime) {
  for (const LossSettings& settings : {LossSettings{}, LossSettings{.label_smoothing = 0.2, .z_loss = 0.1}})
    for (const int64_t rows : {1, 7, 64})
      for (const int64_t together : {1, 3, 64, 100}) {
        const ParameterPtr head = random_parameter({33, 6}, 2);
        const at::Tensor targets = random_ids(rows, 33, 3);
        expect_same(
            random_tensor({rows, 6}, 1), {head},
            [&](const auto& x) { return head_loss_sum(x, head, {}, {}, targets, form_of(33, settings), together); },
            [&](const auto& x, const auto& w) { return plain_loss(x, w[0], targets, settings); }, 1e-11);
      }
}

TEST(HeadLoss, TakesTheRowsThatItIsToldTo) {
  const ParameterPtr head = random_parameter({9, 6}, 2);
  const at::Tensor chosen = at::tensor({int64_t{4}, int64_t{0}, int64_t{7}}), targets = random_ids(3, 9, 3);
  const auto some = [&](const at::Tensor& x) { return x.index_select(0, chosen); };
  expect_same(
      random_tensor({8, 6}, 1), {head},
      [&](const auto& x) { return head_loss_sum(x, head, {}, some, targets, form_of(9), 2); },
      [&](const auto& x, const auto& w) { return plain_loss(some(x), w[0], targets, {}); }, 1e-11);
}

TEST(HeadLoss, RanksThatShareOutTheVocabularyGetTheSame) {
  for (const int64_t rows : {0, 1, 50}) {
    const at::Tensor x = random_tensor({rows, 6}, 1), weight = random_tensor({41, 6}, 2);
    const at::Tensor targets = random_ids(rows, 41, 3);
    const at::Tensor whole_x = x.clone().set_requires_grad(true), whole_w = weight.clone().set_requires_grad(true);
    const at::Tensor expected = plain_loss(whole_x, whole_w, targets, {});
    expected.backward();
    at::Tensor sum = at::zeros_like(x);
    std::mutex guard;
    const auto error = run_ranks({.size = 3}, [&](World& world) {
      const Range own = Split(41, {3}).part(world.rank());
      const ParameterPtr head = parameter_of(weight.narrow(0, own.begin, own.end - own.begin).contiguous());
      const LossFormPtr form = form_of(41);
      form->first_class = own.begin;
      form->ranks = world.all();
      const at::Tensor here = x.clone().set_requires_grad(true);
      world.keep_calls();
      const at::Tensor loss = head_loss_sum(here, head, {}, {}, targets, form, /*rows_together=*/7);
      EXPECT_EQ(std::ssize(world.calls()), 3) << "as many as for all rows together";
      loss.backward();
      const std::lock_guard lock(guard);
      EXPECT_LE(relative_difference(loss, expected), 1e-12);
      EXPECT_LE(relative_difference(head->gradient, whole_w.grad().narrow(0, own.begin, own.end - own.begin)), 1e-12);
      sum += here.grad();
    });
    EXPECT_FALSE(error);
    EXPECT_LE(relative_difference(sum, whole_x.grad()), 1e-12);
  }
}

TEST(HeadLoss, AWeightGradientThatIsDeferredIsTheSame) {
  const ParameterPtr now = random_parameter({9, 6}, 2), later = random_parameter({9, 6}, 2);
  const at::Tensor x = random_tensor({8, 6}, 1), targets = random_ids(8, 9, 3);
  WeightGradients deferred;
  head_loss_sum(x, now, {}, {}, targets, form_of(9), 3).backward();
  head_loss_sum(x, later, {.deferred = &deferred}, {}, targets, form_of(9), 3).backward();
  EXPECT_FALSE(later->gradient.defined());
  EXPECT_EQ(deferred.size(), 3);
  deferred.run();
  EXPECT_TRUE(later->gradient.equal(now->gradient));
}

TEST(HeadLoss, AHeadThatIsNotTrainedPassesGradientsOn) {
  const ParameterPtr head = random_parameter({9, 6}, 2);
  head->value.set_requires_grad(false);
  const at::Tensor x = random_tensor({8, 6}, 1).set_requires_grad(true), targets = random_ids(8, 9, 3);
  head_loss_sum(x, head, {}, {}, targets, form_of(9), 3).backward();
  const at::Tensor plain = x.detach().clone().set_requires_grad(true);
  plain_loss(plain, head->value, targets, {}).backward();
  EXPECT_LE(relative_difference(x.grad(), plain.grad()), 1e-12);
  EXPECT_FALSE(head->gradient.defined());
}

TEST(HeadLoss, NeverHoldsAllLogits) {
  constexpr int64_t kRows = 1000, kClasses = 500, kTogether = 20;
  const ParameterPtr head = random_parameter({kClasses, 6}, 2);
  const at::Tensor x = random_tensor({kRows, 6}, 1).set_requires_grad(true), targets = random_ids(kRows, kClasses, 3);
  const LiveBytes live;
  const at::Tensor loss = head_loss_sum(x, head, {}, {}, targets, form_of(kClasses), kTogether);
  const int64_t after_forward = live.now();
  loss.backward();
  EXPECT_LT(after_forward, kRows * 6 * 8) << "a number a row";
  // Logits of some rows, rows' gradients and the weight's, and what is looked at together in passing.
  EXPECT_LT(live.most(), (4 * kTogether * kClasses + 2 * kRows * 6 + 2 * kClasses * 6 + 8 * kRows) * 8);
  EXPECT_LT(live.most(), kRows * kClasses * 8 / 4);
}

}  // namespace
}  // namespace weft::head_loss_test
