#include "weft/layers/dropout.h"

#include <cmath>
#include <set>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/softmax.h>
#include <gtest/gtest.h>

#include "weft/layers/attention_core.h"

namespace weft {
namespace {

const at::TensorOptions kDoubles = at::TensorOptions().dtype(at::kDouble);

at::Tensor numbers(int64_t sample, int64_t count) {
  return at::arange(count, at::kLong) + row_number(sample, 0);
}

TEST(Dropout, DropsAsManyAsAskedForAndKeepsTheMean) {
  const DropoutKey key = dropout_key({.seed = 5, .step = 2}, 3, DropoutSite::kMlpSum);
  const at::Tensor x = at::ones({400, 301}, kDoubles);
  for (const double probability : {0.1, 0.5, 0.9}) {
    const at::Tensor y = drop_elements(x, numbers(7, 400), probability, key);
    const double dropped = y.eq(0).to(at::kDouble).mean().item<double>();
    EXPECT_NEAR(dropped, probability, 0.005);
    EXPECT_TRUE(y.masked_select(y.ne(0)).allclose(at::full({1}, 1 / (1 - probability), kDoubles)));
  }
  EXPECT_TRUE(drop_elements(x, numbers(7, 400), 0, key).equal(x));
}

TEST(Dropout, AnElementsFateIsItsOwnWhateverRowsItIsWith) {
  const DropoutKey key = dropout_key({.seed = 5, .step = 2}, 3, DropoutSite::kMlpSum);
  const at::Tensor x = at::randn({30, 13}, kDoubles);
  const at::Tensor rows = at::cat({numbers(1, 12), numbers(4, 18)});
  const at::Tensor whole = drop_elements(x, rows, 0.4, key);
  const at::Tensor some = at::arange(29, 2, -3, at::kLong);
  EXPECT_TRUE(
      drop_elements(x.index_select(0, some), rows.index_select(0, some), 0.4, key).equal(whole.index_select(0, some)));
}

TEST(Dropout, SeedStepLayerOperatorAndSampleEachChangeWhatIsDropped) {
  const at::Tensor x = at::ones({8, 64}, kDoubles);
  std::set<std::string> seen;
  const auto add = [&](DropoutDraws draws, int64_t layer, DropoutSite site, int64_t sample) {
    const at::Tensor kept = drop_elements(x, numbers(sample, 8), 0.5, dropout_key(draws, layer, site)).ne(0).flatten();
    std::string text;
    for (int64_t i = 0; i < kept.size(0); ++i) text += kept[i].item<bool>() ? '1' : '0';
    seen.insert(text);
  };
  add({.seed = 1, .step = 1}, 0, DropoutSite::kMlpSum, 0);
  add({.seed = 2, .step = 1}, 0, DropoutSite::kMlpSum, 0);
  add({.seed = uint64_t{1} << 32, .step = 1}, 0, DropoutSite::kMlpSum, 0);
  add({.seed = 1, .step = 2}, 0, DropoutSite::kMlpSum, 0);
  add({.seed = 1, .step = 1}, 1, DropoutSite::kMlpSum, 0);
  add({.seed = 1, .step = 1}, 0, DropoutSite::kAttentionSum, 0);
  add({.seed = 1, .step = 1}, 0, DropoutSite::kMlpSum, 1);
  EXPECT_EQ(seen.size(), 7u);
}

TEST(Dropout, TheBackwardDropsTheSame) {
  const DropoutKey key = dropout_key({.seed = 9, .step = 4}, 0, DropoutSite::kEmbedding);
  at::Tensor x = at::randn({6, 10}, kDoubles).set_requires_grad(true);
  const at::Tensor y = drop_elements(x, numbers(3, 6), 0.3, key);
  y.sum().backward();
  EXPECT_TRUE(x.grad().allclose((y / x).detach()));
}

/// Attention written out, with the factors of a block that all rows are one of.
at::Tensor plain_attention(const at::Tensor& qkv, const HeadCounts& h, const at::Tensor& factors) {
  const at::Tensor all = qkv.view({qkv.size(0), h.heads + 2 * h.kv_heads, h.head_dim}).transpose(0, 1);
  const auto repeated = [&](int64_t first) {
    return all.narrow(0, first, h.kv_heads).repeat_interleave(h.heads / h.kv_heads, 0);
  };
  const at::Tensor scores = at::matmul(all.narrow(0, 0, h.heads), repeated(h.heads).transpose(1, 2)) /
                            std::sqrt(static_cast<double>(h.head_dim));
  const at::Tensor hidden = at::ones({qkv.size(0), qkv.size(0)}, at::kBool).triu(1);
  const at::Tensor weights = at::softmax(scores.masked_fill(hidden, -1e300), -1) * factors;
  return at::matmul(weights, repeated(h.heads + h.kv_heads)).transpose(0, 1).flatten(1);
}

TEST(Dropout, AttentionDropsWeightsAndItsGradientsFollow) {
  for (const HeadCounts heads : {HeadCounts{4, 4, 6}, HeadCounts{6, 2, 4}}) {
    for (const AttentionKeeps keeps : {AttentionKeeps::kResults, AttentionKeeps::kNothing}) {
      const AttentionDropout dropout{.probability = 0.35,
                                     .key = dropout_key({.seed = 2, .step = 8}, 1, DropoutSite::kAttention),
                                     .rows = numbers(5, 11),
                                     .first_head = 3};
      const at::Tensor values = at::randn({11, heads.packed_width()}, kDoubles);
      const at::Tensor factors =
          attention_factors({.probability = 0.35, .key = dropout.key, .queries = {}, .keys = {}, .first_head = 3},
                            dropout.rows, dropout.rows, 1, heads.heads, kDoubles)
              .squeeze(0);
      EXPECT_GT(factors.eq(0).sum().item<int64_t>(), 0);
      at::Tensor expected_in = values.clone().set_requires_grad(true);
      const at::Tensor expected = plain_attention(expected_in, heads, factors);
      expected.sin().sum().backward();
      at::Tensor found_in = values.clone().set_requires_grad(true);
      const at::Tensor found =
          attention_core(found_in * 1, heads, {}, PackedSegments({11}), {.is_causal = true}, keeps, dropout);
      found.sin().sum().backward();
      EXPECT_TRUE(found.allclose(expected, 1e-12, 1e-12));
      EXPECT_TRUE(found_in.grad().allclose(expected_in.grad(), 1e-12, 1e-12));
    }
  }
}

}  // namespace
}  // namespace weft
