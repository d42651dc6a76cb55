#include "weft/cost/layer_walk.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "weft/cost/block_memory.h"
#include "weft/cost/end_walk.h"
#include "weft/program/text_ends.h"
#include "weft/program/transformer_block.h"

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

/// How tensor-parallel ranks have a block's rows.
struct RowSetting {
  int64_t tp = 1;
  bool divides_rows = false;

  std::string text() const { return fmt::format("tp {}{}", tp, divides_rows ? ", rows divided" : ""); }
};
const std::vector<RowSetting> kRowSettings = {{1, false}, {2, false}, {2, true}, {4, false}, {4, true}};

/// Walks a block of 16-bit rows forwards and says what it keeps beside its output.
template <typename Walk>
double walked_bytes(const RowSetting& setting, bool recomputes_attention, Walk walk) {
  ByteCount count;
  WayBack way;
  const int64_t rows = setting.divides_rows ? kRows / setting.tp : kRows;
  const WalkContext context{.count = &count,
                            .way = &way,
                            .element_bytes = 2,
                            .recomputes_attention = recomputes_attention,
                            .share = {.tp = setting.tp, .ep = 1, .tp_rank = 0},
                            .divides_rows = setting.divides_rows,
                            .rows = rows,
                            .whole_rows = kRows,
                            .segments = std::make_shared<std::vector<int64_t>>(4, kRows / 4)};
  const CountedTensor x = context.rows_of(rows, 512);
  CountedTensor y = walk(x, context);
  y.reset();
  const int64_t held = count.held();
  way.run(context.rows_of(rows, 512));
  EXPECT_EQ(count.held(), x.bytes()) << "a backward leaves something behind";
  return static_cast<double>(held);
}

BlockMemory priced(const Block& block, const RowSetting& setting) {
  const Module module{.width = 512, .distinct_layers = {block}};
  return memory_of(module, block,
                   {.tp = setting.tp, .sequence_parallel = setting.divides_rows, .precision = Precision::kBf16},
                   {{kRows / 4.0, 4}});
}

TEST(LayerWalk, KeepsWhatTheCostModelPrices) {
  for (const bool norms_heads : {false, true}) {
    const Block block = make_transformer_block(gated_layer(norms_heads));
    for (const RowSetting& setting : kRowSettings) {
      const auto walk = [&](const CountedTensor& x, const WalkContext& context) {
        return LayerWalk{{.block = block}}.forward(x, context);
      };
      const BlockMemory memory = priced(block, setting);
      EXPECT_DOUBLE_EQ(walked_bytes(setting, false, walk), memory.saved) << setting.text();
      // The output of recomputed attention stays all the same: the projection behind it needs it.
      EXPECT_DOUBLE_EQ(walked_bytes(setting, true, walk), memory.saved_selective) << setting.text();
    }
  }
}

TEST(LayerWalk, ExpertsKeepWhatTheCostModelPricesAndTheNumbersOfRows) {
  TransformerBlockShape shape = gated_layer(false);
  shape.mlp.experts = 8;
  shape.mlp.experts_per_token = 2;
  const Block block = make_transformer_block(shape);
  const auto numbers = [&](const RowSetting& setting) {
    const auto walk = [&](const CountedTensor& x, const WalkContext& context) {
      return LayerWalk{{.block = block}}.forward(x, context);
    };
    return walked_bytes(setting, false, walk) - priced(block, setting).saved;
  };
  const double on_one_rank = numbers({});
  EXPECT_GE(on_one_rank, 0);
  EXPECT_LE(on_one_rank, kRows * 2 * 5 * kIndexBytes);
  for (const RowSetting& setting : kRowSettings) EXPECT_DOUBLE_EQ(numbers(setting), on_one_rank) << setting.text();
}

TEST(LayerWalk, TheHeadKeepsItsLogitsOnce) {
  const Block head = make_head(4096, 512, make_norm("norm", NormKind::kRms, 512, 1e-6), /*is_tied=*/false);
  for (const RowSetting& setting : kRowSettings) {
    const auto walk = [&](const CountedTensor& x, const WalkContext& context) {
      walk_llm_exit({.block = head}, x, kRows, /*recomputes_logits=*/false, context);
      return CountedTensor();
    };
    // With several ranks a target's place among the classes of each is kept, too.
    const double places = setting.tp > 1 ? kRows * (kIndexBytes + kFlagBytes) : 0;
    EXPECT_DOUBLE_EQ(walked_bytes(setting, false, walk), priced(head, setting).saved + places) << setting.text();
  }
}

}  // namespace
}  // namespace weft
