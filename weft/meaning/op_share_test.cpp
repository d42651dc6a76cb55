#include "weft/meaning/op_share.h"

#include <gtest/gtest.h>

#include "tests/support/source_tree.h"
#include "weft/mesh/head_share.h"
#include "weft/spec/scenario.h"
#include "weft/spec/work.h"

namespace weft {
namespace {

TEST(OpShare, KeyAndValueHeadsAreCopiedWhereRanksOutnumberThem) {
  // 28 heads of 128 use 4 keys and values each. At tp 7 three keys have two ranks each and the last has one, which
  // has all seven of its queries.
  const Matmul qkv{.in = 3584, .out = (28 + 8) * 128, .head_dim = 128, .heads = 28, .kv_heads = 4};
  const auto out_at = [&](int64_t tp) { return local_matmul(qkv, TensorSplit::kColumn, {.tp = tp}).out / 128; };
  EXPECT_EQ(out_at(3), 14 + 4) << "keys are dealt out whole, two to the first";
  EXPECT_EQ(out_at(4), 7 + 2);
  EXPECT_EQ(out_at(7), 7 + 2);
  EXPECT_EQ(out_at(28), 1 + 2);
  const Matmul out{.in = 28 * 128, .out = 3584, .head_dim = 128, .heads = 28, .kv_heads = 4};
  EXPECT_EQ(local_matmul(out, TensorSplit::kRow, {.tp = 3}).in, 14 * 128);
  EXPECT_EQ(local_matmul(out, TensorSplit::kRow, {.tp = 3, .tp_rank = 2}).in, 7 * 128);
  const Attention core{.heads = 28, .kv_heads = 4, .head_dim = 128};
  EXPECT_EQ(local_heads(core, {.tp = 8}).keys, 1);
  EXPECT_EQ(heads_after_ulysses(core, {.tp = 4}, 2).queries, 4) << "of seven the busier has four";
}

TEST(OpShare, ABiasThatKeysLackHasZerosOfThemWhereAProgramHoldsIt) {
  // Queries, keys and values of two heads, in a share for each of these.
  Op op{.name = "attention.qkv",
        .shape = Matmul{.in = 16, .out = 48, .bias_elements = 32, .head_dim = 8, .heads = 2, .kv_heads = 2},
        .out = Features::kHeads,
        .held = HeldWeights{.bias = HeldCut{.dim = 0, .unit = 24}, .shares = 2}};
  for (const int64_t rank : {0, 1}) {
    std::vector<LocalWeight> weights;
    list_weights(op, {.tp = 2, .tp_rank = rank}, weights);
    ASSERT_EQ(weights.size(), 2u);
    EXPECT_EQ(weights[0].elements, 48 * 16);
    EXPECT_EQ(weights[1].elements, 24) << "rank " << rank;
  }
  op.held->bias.reset();
  std::vector<LocalWeight> weights;
  list_weights(op, {.tp = 2, .tp_rank = 1}, weights);
  EXPECT_EQ(weights[1].elements, 48);
}

TEST(OpShare, HeadsAfterUlyssesAreThoseOfTheBusiestRank) {
  int num_uneven = 0, num_even = 0;
  for (const auto& [heads, kv_heads] : {std::pair{28, 4}, {32, 8}, {24, 24}, {12, 2}, {40, 8}, {16, 1}}) {
    for (const int64_t tp : {1, 2, 3, 4, 7, 8}) {
      for (const int64_t ulysses : {1, 2, 3, 4}) {
        const Attention attention{.heads = heads, .kv_heads = kv_heads, .head_dim = 8};
        int64_t queries = 0, keys = 0, fewest = heads;
        for (int64_t rank = 0; rank < tp && tp <= heads; ++rank) {
          const HeadShare here = share_of_heads({heads, kv_heads, 8}, tp, rank);
          fewest = std::min(fewest, here.num_heads);
          for (int64_t place = 0; place < ulysses && ulysses <= here.num_heads; ++place) {
            const HeadShare own = share_of_heads({here.num_heads, here.num_kv_heads, 8}, ulysses, place);
            queries = std::max(queries, own.num_heads);
            keys = std::max(keys, own.num_kv_heads);
          }
        }
        if (tp > heads || ulysses > fewest) continue;
        const LocalHeads most = heads_after_ulysses(attention, {.tp = tp}, ulysses);
        EXPECT_EQ(most.queries, queries) << heads << " " << kv_heads << " tp " << tp << " ulysses " << ulysses;
        EXPECT_EQ(most.keys, keys) << heads << " " << kv_heads << " tp " << tp << " ulysses " << ulysses;
        ++(queries * tp * ulysses == heads ? num_even : num_uneven);
      }
    }
  }
  EXPECT_GE(num_even, 20);
  EXPECT_GE(num_uneven, 20);
}

TEST(OpShare, EveryRanksSharesAddUpToTheModel) {
  const Model model = *Scenarios(source_tree() / "scenarios").model("qwen2-vl-7b");
  for (const Block& block : model.find(ModuleKind::kLlm)->distinct_layers) {
    for (const Op& op : block.ops) {
      if (op.split() != TensorSplit::kColumn && op.split() != TensorSplit::kRow) continue;
      for (const int64_t tp : {2, 3, 4}) {  // at most as many as keys, of which there are no copies then
        int64_t all = 0;
        for (int64_t rank = 0; rank < tp; ++rank) all += local_parameters(op, {.tp = tp, .tp_rank = rank}).total();
        const auto* product = std::get_if<Matmul>(&op.shape);
        const int64_t copied = op.split() == TensorSplit::kRow ? (tp - 1) * product->bias_elements : 0;
        EXPECT_EQ(all, num_parameters(op) + copied) << op.name << " tp " << tp;
      }
    }
  }
}

}  // namespace
}  // namespace weft
