#include "weft/layers/attention_block.h"

#include "tests/support/layers/compare_gradients.h"

namespace weft {
namespace {

using Sees = AttentionBlock::Sees;

struct Filled {
  AttentionState state;
  AttentionParts gradients;
};

/// Blocks one after the other, forward and backward.
Filled run_blocks(const at::Tensor& qkv, const at::Tensor& dout, const HeadCounts& heads,
                  const std::vector<AttentionBlock>& blocks, AttentionKernel kernel) {
  const AttentionParts parts = attention_parts(qkv, heads);
  Filled filled{empty_state(parts.q), attention_parts(at::empty_like(qkv), heads)};
  for (const AttentionBlock& block : blocks) attend_block(parts, block, heads, filled.state, kernel);
  for (const AttentionBlock& block : blocks)
    attend_block_backward(dout, parts, block, heads, filled.state, filled.gradients, kernel);
  return filled;
}

void expect_equal(const Filled& found, const Filled& expected, double tolerance) {
  EXPECT_LE(relative_difference(found.state.out, expected.state.out), tolerance);
  EXPECT_LE(relative_difference(found.state.log_sums, expected.state.log_sums), tolerance);
  EXPECT_LE(relative_difference(found.gradients.q, expected.gradients.q), tolerance);
  EXPECT_LE(relative_difference(found.gradients.k, expected.gradients.k), tolerance);
  EXPECT_LE(relative_difference(found.gradients.v, expected.gradients.v), tolerance);
}

const std::vector<HeadCounts> kHeads = {{3, 3, 4}, {4, 2, 6}, {6, 1, 2}};

/// Rows 0 to 11 as one, and in parts of 5 and 7.
std::vector<AttentionBlock> whole_block(Sees sees) {
  return {{.queries = {0, 12}, .keys = {0, 12}, .sees = sees, .has_own_keys = true}};
}
std::vector<AttentionBlock> part_blocks(Sees sees) {
  std::vector<AttentionBlock> blocks = {
      {.queries = {0, 5}, .keys = {0, 5}, .sees = sees, .has_own_keys = true},
      {.queries = {5, 12}, .keys = {5, 12}, .sees = sees, .has_own_keys = true},
      {.queries = {5, 12}, .keys = {0, 5}},
  };
  if (sees == Sees::kAll) blocks.push_back({.queries = {0, 5}, .keys = {5, 12}});
  return blocks;
}

TEST(AttentionBlocks, PartsComeToTheWhole) {
  for (const HeadCounts& heads : kHeads) {
    const at::Tensor qkv = random_tensor({12, heads.packed_width()}, 1);
    const at::Tensor dout = random_tensor({12, heads.heads, heads.head_dim}, 2);
    for (const AttentionKernel kernel : {AttentionKernel::kFlash, AttentionKernel::kComposed}) {
      for (const Sees sees : {Sees::kAll, Sees::kCausal}) {
        expect_equal(run_blocks(qkv, dout, heads, part_blocks(sees), kernel),
                     run_blocks(qkv, dout, heads, whole_block(sees), AttentionKernel::kFlash), 1e-12);
      }
    }
  }
}

TEST(AttentionBlocks, OperatorsOfAnyDeviceGiveWhatTheKernelOfTheCpuGives) {
  for (const auto& [type, tolerance] : std::vector<std::pair<at::ScalarType, double>>{
           {at::kDouble, 1e-12}, {at::kFloat, 5e-6}, {at::kBFloat16, 3e-2}}) {
    for (const HeadCounts& heads : kHeads) {
      const at::Tensor qkv = random_tensor({12, heads.packed_width()}, 1, type);
      const at::Tensor dout = random_tensor({12, heads.heads, heads.head_dim}, 2, type);
      const std::vector<AttentionBlock> window = {
          {.queries = {0, 12}, .keys = {0, 12}, .sees = Sees::kWindow, .window = 3, .has_own_keys = true}};
      for (const auto& blocks : {whole_block(Sees::kAll), whole_block(Sees::kCausal), window}) {
        Filled filled[2];
        for (const AttentionKernel kernel : {AttentionKernel::kFlash, AttentionKernel::kComposed}) {
          const AttentionParts parts = attention_parts(qkv, heads);
          AttentionState state = empty_state(parts.q);
          attend_block(parts, blocks.front(), heads, state, kernel);
          state.out = state.out.to(type);
          const AttentionParts gradients = attention_parts(at::empty_like(qkv), heads);
          attend_block_backward(dout, parts, blocks.front(), heads, state, gradients, kernel);
          filled[static_cast<size_t>(kernel)] = {state, gradients};
        }
        expect_equal(filled[1], filled[0], tolerance);
      }
    }
  }
}

TEST(AttentionBlocks, BlocksOfOneSizeAreOneCall) {
  const HeadCounts heads = {3, 3, 4};
  const at::Tensor qkv = random_tensor({12, heads.packed_width()}, 1);
  const at::Tensor dout = random_tensor({12, heads.heads, heads.head_dim}, 2);
  const AttentionBlock three{
      .queries = {0, 4}, .keys = {0, 4}, .count = 3, .sees = Sees::kCausal, .has_own_keys = true};
  std::vector<AttentionBlock> single;
  for (int64_t begin : {0, 4, 8}) {
    const Range rows{begin, begin + 4};
    single.push_back({.queries = rows, .keys = rows, .sees = Sees::kCausal, .has_own_keys = true});
  }
  for (const AttentionKernel kernel : {AttentionKernel::kFlash, AttentionKernel::kComposed}) {
    expect_equal(run_blocks(qkv, dout, heads, {three}, kernel), run_blocks(qkv, dout, heads, single, kernel), 1e-14);
  }
}

}  // namespace
}  // namespace weft
