#include "weft/layers/attention_core.h"

#include <cmath>

#include "tests/support/layers/compare_gradients.h"
#include "weft/layers/kv_cache.h"

namespace weft::attention_core_test {
namespace {

RotaryTable table_of(int64_t rows, int64_t head_dim) {
  const at::Tensor angles = 3 * random_tensor({rows, head_dim / 2}, 11);
  return {at::cos(angles), at::sin(angles)};
}

at::Tensor plain_rotated(const at::Tensor& heads, const RotaryTable& table) {
  const auto halves = heads.chunk(2, -1);
  const at::Tensor cos = table.cos.unsqueeze(1), sin = table.sin.unsqueeze(1);
  return at::cat({halves[0] * cos - halves[1] * sin, halves[1] * cos + halves[0] * sin}, -1);
}

/// Every row with every other, what must not be seen masked away.
at::Tensor plain_attention(const at::Tensor& qkv, const HeadCounts& h, const RotaryTable& rotary,
                           const std::vector<int64_t>& lengths, AttentionMask mask) {
  const int64_t rows = qkv.size(0);
  auto parts =
      qkv.unflatten(1, {h.heads + 2 * h.kv_heads, h.head_dim}).split_with_sizes({h.heads, h.kv_heads, h.kv_heads}, 1);
  if (rotary.is_defined()) {
    parts[0] = plain_rotated(parts[0], rotary);
    parts[1] = plain_rotated(parts[1], rotary);
  }
  const at::Tensor k = parts[1].repeat_interleave(h.heads / h.kv_heads, 1);
  const at::Tensor v = parts[2].repeat_interleave(h.heads / h.kv_heads, 1);
  const at::Tensor seen = at::zeros({rows, rows}, at::kBool);
  int64_t begin = 0;
  for (const int64_t length : lengths) {
    for (int64_t i = begin; i < begin + length; ++i) {
      for (int64_t j = begin; j < begin + length; ++j) {
        const bool is_seen = !mask.is_causal || (j <= i && (mask.window == 0 || j > i - mask.window));
        if (is_seen) seen[i][j] = true;
      }
    }
    begin += length;
  }
  const at::Tensor scores = at::einsum("ihd,jhd->hij", {parts[0], k}) / std::sqrt(static_cast<double>(h.head_dim));
  const at::Tensor weights = at::softmax(scores.masked_fill(seen.logical_not(), -1e300), -1);
  return at::einsum("hij,jhd->ihd", {weights, v}).flatten(1);
}

void expect_attention(const HeadCounts& h, const std::vector<int64_t>& lengths, AttentionMask mask, bool turns) {
  const PackedSegments segments(lengths);
  const int64_t rows = segments.num_rows();
  const RotaryTable rotary = turns ? table_of(rows, h.head_dim) : RotaryTable{};
  for (const AttentionKeeps keeps : {AttentionKeeps::kResults, AttentionKeeps::kNothing}) {
    expect_same(
        random_tensor({rows, h.packed_width()}, 1), {},
        [&](const auto& x) { return attention_core(x.clone(), h, rotary, segments, mask, keeps); },
        [&](const auto& x, const auto&) { return plain_attention(x, h, rotary, lengths, mask); }, 1e-11);
  }
}

const std::vector<HeadCounts> kHeads = {{1, 1, 4}, {4, 4, 6}, {4, 2, 8}, {6, 1, 10}, {8, 2, 16}};
const std::vector<std::vector<int64_t>> kLengths = {
    {9}, {1}, {1, 1, 1}, {5, 5, 5}, {5, 5, 3, 3, 7}, {1, 6, 1, 6}, {0, 4, 0, 4, 2, 0}, {70, 33}};

TEST(AttentionCore, EveryRowSeesItsSegment) {
  for (const HeadCounts& h : kHeads) {
    for (const auto& lengths : kLengths) expect_attention(h, lengths, {}, /*turns=*/true);
  }
}

TEST(AttentionCore, CausalRowsSeeWhatCameBefore) {
  for (const HeadCounts& h : kHeads) {
    for (const auto& lengths : kLengths) expect_attention(h, lengths, {.is_causal = true}, /*turns=*/true);
  }
}

TEST(AttentionCore, WindowsCutWhatIsTooFarBack) {
  for (const int64_t window : {1, 2, 4, 8, 64, 1000}) {
    for (const HeadCounts& h : {kHeads[1], kHeads[2]}) {
      for (const auto& lengths : {kLengths[0], kLengths[2], kLengths[4], kLengths[7]})
        expect_attention(h, lengths, {.is_causal = true, .window = window}, /*turns=*/true);
    }
  }
}

TEST(AttentionCore, WithoutATableNothingTurns) {
  for (const HeadCounts& h : kHeads) expect_attention(h, {5, 5, 3}, {.is_causal = true}, /*turns=*/false);
}

TEST(AttentionCore, NoRowsGiveNoRows) {
  for (const HeadCounts& h : {kHeads[1], kHeads[2]}) {
    const at::Tensor qkv = at::empty({0, h.packed_width()}, at::kDouble).set_requires_grad(true);
    const at::Tensor y = attention_core(qkv.clone(), h, table_of(0, h.head_dim), PackedSegments(), {});
    EXPECT_EQ(y.sizes(), (std::vector<int64_t>{0, h.heads * h.head_dim}));
    y.sum().backward();
    EXPECT_EQ(qkv.grad().sizes(), qkv.sizes());
  }
}

TEST(AttentionCore, RowsThatAreColumnsOfAWiderTensorAreUnderstood) {
  const HeadCounts h = {4, 2, 8};
  const std::vector<int64_t> lengths = {3, 3, 5};
  const RotaryTable rotary = table_of(11, 8);
  const AttentionMask mask{.is_causal = true};
  expect_same(
      random_tensor({11, h.packed_width() + 7}, 1), {},
      [&](const auto& x) {
        return attention_core(x.clone().narrow(1, 3, h.packed_width()), h, rotary, PackedSegments(lengths), mask);
      },
      [&](const auto& x, const auto&) {
        return plain_attention(x.narrow(1, 3, h.packed_width()), h, rotary, lengths, mask);
      },
      1e-11);
}

TEST(AttentionCore, GradientsThatAreOneNumberForAllAreUnderstood) {
  const HeadCounts h = {4, 2, 8};
  const at::Tensor x = random_tensor({8, h.packed_width()}, 1).set_requires_grad(true);
  const at::Tensor plain = x.detach().clone().set_requires_grad(true);
  const RotaryTable rotary = table_of(8, 8);
  attention_core(x.clone(), h, rotary, PackedSegments({5, 3}), {}).sum().backward();
  plain_attention(plain, h, rotary, {5, 3}, {}).sum().backward();
  EXPECT_LE(relative_difference(x.grad(), plain.grad()), 1e-11);
}

TEST(AttentionCore, FloatAndBfloat16AreNearTheExactResult) {
  const HeadCounts h = {8, 2, 32};
  const std::vector<int64_t> lengths = {100, 40, 40, 1};
  for (const auto& [type, tolerance] : {std::pair{at::kFloat, 1e-5}, std::pair{at::kBFloat16, 0.03}}) {
    const at::Tensor x = random_tensor({181, h.packed_width()}, 1).to(type).set_requires_grad(true);
    const at::Tensor exact = x.detach().to(at::kDouble).set_requires_grad(true);
    const RotaryTable rotary = table_of(181, 32);
    const RotaryTable in_float{rotary.cos.to(at::kFloat), rotary.sin.to(at::kFloat)};
    const at::Tensor found = attention_core(x.clone(), h, in_float, PackedSegments(lengths), {.is_causal = true});
    const at::Tensor expected = plain_attention(exact, h, rotary, lengths, {.is_causal = true});
    EXPECT_EQ(found.scalar_type(), type);
    EXPECT_LE(relative_difference(found, expected), tolerance);
    const at::Tensor gradient = random_tensor(expected.sizes(), 5).to(type);
    found.backward(gradient);
    expected.backward(gradient.to(at::kDouble));
    EXPECT_LE(relative_difference(x.grad(), exact.grad()), tolerance);
  }
}

TEST(AttentionCore, RowByRowWithThePastIsTheSameAsAllAtOnce) {
  for (const HeadCounts& h : kHeads) {
    for (const int64_t window : {0, 1, 3, 100}) {
      for (const int64_t prompt : {1, 5}) {
        SCOPED_TRACE(testing::Message() << h.heads << "/" << h.kv_heads << " heads, window " << window);
        const int64_t rows = 9;
        const AttentionMask mask{.is_causal = true, .window = window};
        const at::Tensor qkv = random_tensor({rows, h.packed_width()}, 1);
        const at::Tensor expected = plain_attention(qkv, h, {}, {rows}, mask);
        KvCache cache(/*num_layers=*/2, /*capacity=*/rows);
        std::vector<at::Tensor> found;
        for (int64_t begin = 0; begin < rows; begin += begin == 0 ? prompt : 1) {
          const int64_t count = begin == 0 ? prompt : 1;
          const auto parts = qkv.narrow(0, begin, count)
                                 .unflatten(1, {h.heads + 2 * h.kv_heads, h.head_dim})
                                 .split_with_sizes({h.heads, h.kv_heads, h.kv_heads}, 1);
          const KvCache::Rows past = cache.append(1, parts[1], parts[2]);
          EXPECT_EQ(past.keys.size(0), begin + count);
          found.push_back(attention_with_past(parts[0], past.keys, past.values, mask));
        }
        EXPECT_LE(relative_difference(at::cat(found), expected), 1e-12);
      }
    }
  }
}

TEST(AttentionCore, SegmentsOfOneLengthAreOneRun) {
  const PackedSegments segments({4, 4, 0, 4, 2, 4});
  ASSERT_EQ(segments.runs().size(), 3u);
  EXPECT_EQ(segments.num_rows(), 18);
  EXPECT_EQ(segments.runs()[0].count, 3);
  EXPECT_EQ(segments.runs()[1].begin, 12);
  EXPECT_EQ(segments.runs()[2].begin, 14);
}

}  // namespace
}  // namespace weft::attention_core_test
