#include "weft/layers/transformer_layer.h"

#include <ATen/core/grad_mode.h>

#include "tests/support/layers/compare_gradients.h"
#include "tests/support/layers/live_bytes.h"
#include "weft/layers/recompute.h"

namespace weft::transformer_layer_test {
namespace {

constexpr HeadCounts kHeads = {4, 2, 6};
constexpr int64_t kWidth = 10;
constexpr int64_t kInner = 7;

ParameterPtr small_parameter(at::IntArrayRef shape, uint64_t seed) {
  return parameter_of(random_tensor(shape, seed) * 0.4);
}

TransformerLayer layer_of(bool is_gated, bool norms_heads, bool has_experts) {
  TransformerLayer layer;
  layer.attention_norm = {.weight = random_parameter({kWidth}, 1), .epsilon = 1e-6};
  layer.attention = {.heads = kHeads,
                     .mask = {.is_causal = true},
                     .qkv = small_parameter({kHeads.packed_width(), kWidth}, 2),
                     .qkv_bias = small_parameter({kHeads.packed_width()}, 3),
                     .norm_epsilon = 1e-6,
                     .out = small_parameter({kWidth, kHeads.heads * kHeads.head_dim}, 4)};
  if (norms_heads) {
    layer.attention.q_norm = random_parameter({kHeads.head_dim}, 5);
    layer.attention.k_norm = random_parameter({kHeads.head_dim}, 6);
  }
  layer.mlp_norm = {.weight = random_parameter({kWidth}, 7), .bias = random_parameter({kWidth}, 8), .epsilon = 1e-6};
  layer.mlp = {.activation = Activation::kQuickGelu,
               .is_gated = is_gated,
               .up = small_parameter({(is_gated ? 2 : 1) * kInner, kWidth}, 9),
               .down = small_parameter({kWidth, kInner}, 10),
               .down_bias = small_parameter({kWidth}, 11)};
  if (has_experts) {
    layer.moe = MoeLayer{.experts_per_token = 2,
                         .normalizes_weights = true,
                         .router = random_parameter({3, kWidth}, 12),
                         .gate_up = small_parameter({3, 2 * kInner, kWidth}, 13),
                         .down = small_parameter({3, kWidth, kInner}, 14)};
  }
  return layer;
}

std::vector<ParameterPtr> parameters_of(const TransformerLayer& layer) {
  std::vector<ParameterPtr> all;
  const auto& a = layer.attention;
  for (const ParameterPtr& p : {layer.attention_norm.weight, a.qkv, a.qkv_bias, a.q_norm, a.k_norm, a.out,
                                layer.mlp_norm.weight, layer.mlp_norm.bias})
    if (p) all.push_back(p);
  if (layer.moe) {
    all.insert(all.end(), {layer.moe->router, layer.moe->gate_up, layer.moe->down});
  } else {
    all.insert(all.end(), {layer.mlp.up, layer.mlp.down, layer.mlp.down_bias});
  }
  return all;
}

RotaryTable table_of(int64_t rows) {
  const at::Tensor angles = random_tensor({rows, kHeads.head_dim / 2}, 21);
  return {at::cos(angles), at::sin(angles)};
}

struct Kind {
  bool is_gated, norms_heads, has_experts;
};
const std::vector<Kind> kKinds = {{true, false, false}, {false, false, false}, {true, true, false}, {true, true, true}};

// Layers have no plain form of their own here; a derivative is the limit of differences.
TEST(TransformerLayers, GradientsAreLimitsOfDifferences) {
  for (const Kind kind : kKinds) {
    const TransformerLayer layer = layer_of(kind.is_gated, kind.norms_heads, kind.has_experts);
    const PackedSegments segments({4, 4, 1, 3});
    const RotaryTable rotary = table_of(12);
    const at::Tensor dy = random_tensor({12, kWidth}, 22);
    const auto value = [&](const at::Tensor& x) {
      const at::NoGradGuard no_graph;
      return (layer.forward(x, {.segments = segments, .rotary = rotary}, {}) * dy).sum().item<double>();
    };
    const at::Tensor x = random_tensor({12, kWidth}, 23).set_requires_grad(true);
    layer.forward(x, {.segments = segments, .rotary = rotary}, {}).backward(dy);
    constexpr double kStep = 1e-5;
    const auto slope = [&](const at::Tensor& moved, const at::Tensor& direction) {
      const at::NoGradGuard no_graph;
      moved.add_(direction, kStep);
      const double above = value(x.detach());
      moved.sub_(direction, 2 * kStep);
      const double below = value(x.detach());
      moved.add_(direction, kStep);
      return (above - below) / (2 * kStep);
    };
    uint64_t seed = 30;
    const at::Tensor direction = random_tensor(x.sizes(), seed);
    const double along = (x.grad() * direction).sum().item<double>();
    EXPECT_NEAR(slope(x.detach(), direction), along, 1e-6 * (1 + std::abs(along)));
    for (const ParameterPtr& p : parameters_of(layer)) {
      const at::Tensor turn = random_tensor(p->value.sizes(), ++seed);
      const double expected = (p->gradient * turn).sum().item<double>();
      EXPECT_NEAR(slope(p->value.detach(), turn), expected, 1e-6 * (1 + std::abs(expected))) << "weight " << seed;
    }
  }
}

TEST(TransformerLayers, RecomputedAttentionGivesTheSameAndKeepsNoLogSums) {
  for (const Kind kind : kKinds) {
    const PackedSegments segments({4, 4, 1, 3});
    const RotaryTable rotary = table_of(12);
    const at::Tensor dy = random_tensor({12, kWidth}, 22).to(at::kFloat);
    std::vector<int64_t> kept_bytes;
    std::vector<std::vector<at::Tensor>> results;
    for (const bool recomputes : {false, true}) {
      const TransformerLayer layer = layer_of(kind.is_gated, kind.norms_heads, kind.has_experts);
      for (const ParameterPtr& p : parameters_of(layer)) {
        p->value = p->value.detach().to(at::kFloat).set_requires_grad(true);
        p->gradient_type = at::kFloat;
      }
      const at::Tensor x = random_tensor({12, kWidth}, 23).to(at::kFloat).set_requires_grad(true);
      const LiveBytes live;
      const at::Tensor y =
          layer.forward(x, {.segments = segments, .rotary = rotary}, {.recomputes_attention = recomputes});
      kept_bytes.push_back(live.now());
      y.backward(dy);
      results.push_back({y.detach(), x.grad()});
      for (const ParameterPtr& p : parameters_of(layer)) results.back().push_back(p->gradient);
    }
    for (size_t i = 0; i < results[0].size(); ++i) EXPECT_TRUE(results[1][i].equal(results[0][i])) << i;
    // What the cost model prices: a number in fp32 for every row and head. The output is the projection's input.
    EXPECT_EQ(kept_bytes[0] - kept_bytes[1], 12 * kHeads.heads * static_cast<int64_t>(sizeof(float)));
  }
}

TEST(TransformerLayers, DeferredAndRecomputedGiveTheSame) {
  for (const Kind kind : kKinds) {
    const PackedSegments segments({4, 4, 1, 3});
    const RotaryTable rotary = table_of(12);
    const at::Tensor dy = random_tensor({12, kWidth}, 22);
    const TransformerLayer plain = layer_of(kind.is_gated, kind.norms_heads, kind.has_experts);
    const TransformerLayer other = layer_of(kind.is_gated, kind.norms_heads, kind.has_experts);
    const at::Tensor x = random_tensor({12, kWidth}, 23).set_requires_grad(true);
    const at::Tensor same = x.detach().clone().set_requires_grad(true);
    plain.forward(x, {.segments = segments, .rotary = rotary}, {}).backward(dy);
    WeightGradients deferred;
    recomputed(
        [&](const at::Tensor& rows) {
          return other.forward(rows, {.segments = segments, .rotary = rotary}, {.deferred = &deferred});
        },
        same, other.attention.qkv->value)
        .backward(dy);
    deferred.run();
    EXPECT_LE(relative_difference(same.grad(), x.grad()), 1e-12);
    const auto expected = parameters_of(plain), found = parameters_of(other);
    for (size_t i = 0; i < found.size(); ++i)
      EXPECT_LE(relative_difference(found[i]->gradient, expected[i]->gradient), 1e-12) << i;
  }
}

TEST(TransformerLayers, SegmentsAreAsIfAlone) {
  const TransformerLayer layer = layer_of(true, false, false);
  const RotaryTable rotary = table_of(12);
  const at::Tensor x = random_tensor({12, kWidth}, 23);
  const at::NoGradGuard no_graph;
  const at::Tensor all = layer.forward(x, {.segments = PackedSegments({4, 4, 1, 3}), .rotary = rotary}, {});
  const at::Tensor alone = layer.forward(
      x.narrow(0, 9, 3), {.segments = PackedSegments(std::vector<int64_t>{3}), .rotary = rotary.rows(9, 3)}, {});
  EXPECT_LE(relative_difference(all.narrow(0, 9, 3), alone), 1e-13);
}

TEST(TransformerLayers, NoRowsWorkBothWaysAndGiveGradientsOfZero) {
  for (const Kind kind : kKinds) {
    const TransformerLayer layer = layer_of(kind.is_gated, kind.norms_heads, kind.has_experts);
    const at::Tensor x = at::empty({0, kWidth}, at::kDouble).set_requires_grad(true);
    const at::Tensor y = layer.forward(x, {.segments = PackedSegments(), .rotary = table_of(0)}, {});
    EXPECT_EQ(y.sizes(), x.sizes());
    y.sum().backward();
    EXPECT_EQ(x.grad().sizes(), x.sizes());
    for (const ParameterPtr& p : parameters_of(layer)) {
      ASSERT_TRUE(p->gradient.defined());
      EXPECT_EQ(p->gradient.abs().sum().item<double>(), 0);
    }
  }
}

TEST(TransformerLayers, BiasesOfRowCutProductsAreAddedOnceAfterTheSites) {
  const TransformerLayer layer = layer_of(true, false, false);
  const PackedSegments segments({4, 2});
  const RotaryTable rotary = table_of(6);
  const at::Tensor x = random_tensor({6, kWidth}, 23);
  const at::NoGradGuard no_graph;
  int entered = 0, left = 0;
  const ActivationSites sites{.enter = [&](const at::Tensor& rows) { return ++entered, rows; },
                              .leave = [&](const at::Tensor& rows) { return ++left, rows; }};
  const at::Tensor plain = layer.forward(x, {.segments = segments, .rotary = rotary}, {});
  const at::Tensor spread = layer.forward(x, {.segments = segments, .rotary = rotary}, {.sites = &sites});
  EXPECT_EQ(entered, 2);
  EXPECT_EQ(left, 2);
  EXPECT_LE(relative_difference(spread, plain), 1e-13);
}

}  // namespace
}  // namespace weft::transformer_layer_test
