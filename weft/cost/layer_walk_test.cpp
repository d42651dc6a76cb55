#include "weft/cost/layer_walk.h"

#include <gtest/gtest.h>

#include "weft/cost/block_memory.h"
#include "weft/cost/end_walk.h"
#include "weft/spec/llm_reader.h"
#include "weft/spec/transformer_block.h"

namespace weft {
namespace {

constexpr int64_t kRows = 1024;

TransformerBlockShape gated_layer(bool norms_heads) {
  return {.name = "layer",
          .width = 512,
          .attention = {.attention = {.heads = 8, .kv_heads = 4, .head_dim = 64, .mask = Mask::kCausal},
                        .norms_heads = norms_heads},
          .mlp = {.intermediate = 1408}};
}

/// Walks a block of 16-bit rows forwards and says what it keeps beside its output.
template <typename Walk>
int64_t walked_bytes(int64_t tp, bool recomputes_attention, Walk walk) {
  ByteCount count;
  WayBack way;
  const WalkContext context{.count = &count,
                            .way = &way,
                            .element_bytes = 2,
                            .recomputes_attention = recomputes_attention,
                            .share = {.tp = tp, .ep = 1, .tp_rank = 0},
                            .rows = kRows,
                            .whole_rows = kRows,
                            .segments = std::make_shared<std::vector<int64_t>>(4, kRows / 4)};
  const CountedTensor x = context.rows_of(kRows, 512);
  CountedTensor y = walk(x, context);
  y.reset();
  const int64_t held = count.held();
  way.run(context.rows_of(kRows, 512));
  EXPECT_EQ(count.held(), x.bytes()) << "a backward leaves something behind";
  return held;
}

BlockMemory priced(const Block& block, int64_t tp) {
  const Module module{.width = 512, .layer_kinds = {block}};
  return memory_of(module, block, {.tp = tp, .precision = Precision::kBf16}, {{kRows / 4.0, 4}});
}

TEST(LayerWalk, KeepsWhatTheCostModelPrices) {
  for (const bool norms_heads : {false, true}) {
    const Block block = make_transformer_block(gated_layer(norms_heads));
    for (const int64_t tp : {1, 2, 4}) {
      const auto walk = [&](const CountedTensor& x, const WalkContext& context) {
        return LayerWalk{{.block = block}}.forward(x, context);
      };
      const BlockMemory memory = priced(block, tp);
      EXPECT_DOUBLE_EQ(static_cast<double>(walked_bytes(tp, false, walk)), memory.saved) << tp;
      // The output of recomputed attention stays all the same: the projection behind it needs it.
      EXPECT_DOUBLE_EQ(static_cast<double>(walked_bytes(tp, true, walk)), memory.saved_selective) << tp;
    }
  }
}

TEST(LayerWalk, TheHeadKeepsItsLogitsOnce) {
  const Block head = make_head(4096, 512, NormKind::kRms, /*is_tied=*/false);
  for (const int64_t tp : {1, 4}) {
    const auto walk = [&](const CountedTensor& x, const WalkContext& context) {
      walk_text_exit({.block = head}, x, kRows, context);
      return CountedTensor();
    };
    // With several ranks a target's place among the classes of each is kept, too.
    const double places = tp > 1 ? kRows * (kIndexBytes + kFlagBytes) : 0;
    EXPECT_DOUBLE_EQ(static_cast<double>(walked_bytes(tp, false, walk)), priced(head, tp).saved + places) << tp;
  }
}

}  // namespace
}  // namespace weft
