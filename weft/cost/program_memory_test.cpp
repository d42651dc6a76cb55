#include "weft/cost/program_memory.h"

#include <gtest/gtest.h>

#include "weft/program/layer_program.h"
#include "weft/program/program_strategy.h"
#include "weft/program/transformer_block.h"

namespace weft::program_memory_test {
namespace {

Block layer(bool is_gated) {
  TransformerBlockShape shape{
      .name = "layer",
      .width = 512,
      .attention = {.attention = {.heads = 8, .kv_heads = 4, .head_dim = 64, .mask = Mask::kCausal}},
      .mlp = {.intermediate = 2048}};
  if (!is_gated)
    shape.mlp = {.intermediate = 2048, .is_gated = false, .has_bias = true, .activation = Activation::kGelu};
  return make_transformer_block(shape);
}

Block with_program(const Block& block, int64_t tp) {
  Module module{.width = 512, .distinct_layers = {block}, .layers = {0}};
  auto program = layer_program(module, 0, tp);
  WEFT_CHECK(program.ok(), "{}", program.error().message());
  module.distinct_layers.front().program = std::make_shared<const BlockProgram>(*std::move(program));
  hold_weights(module);
  return module.distinct_layers.front();
}

TEST(ProgramMemory, OfALayersUsualChoicesIsAboutTheLayers) {
  const Segments segments = {{256, 4}};
  for (const bool is_gated : {false, true}) {
    const Block own = layer(is_gated);
    const Module module{.width = 512, .distinct_layers = {own}, .layers = {0}};
    for (const int64_t tp : {1, 2, 4}) {
      const BlockSetting setting{.tp = tp, .precision = Precision::kBf16};
      const BlockMemory program = program_memory(with_program(own, tp), setting, segments);
      const BlockMemory usual = memory_of(module, own, setting, segments);
      EXPECT_NEAR(program.saved, usual.saved, 0.01 * usual.saved) << "tp " << tp;
      EXPECT_DOUBLE_EQ(program.saved_full, usual.saved_full);
      EXPECT_GT(program.workspace, 0);
      EXPECT_GT(program.deferred, 0.4 * usual.deferred);
      EXPECT_LT(program.deferred, 1.3 * usual.deferred);
    }
  }
}

TEST(ProgramMemory, WithContextParallelismIsAboutTheLayers) {
  const Segments segments = {{1024, 4}};
  for (const Mask mask : {Mask::kCausal, Mask::kFull, Mask::kWindowed}) {
    Block own = layer(true);
    for (Op& op : own.ops) {
      if (auto* attention = std::get_if<Attention>(&op.shape)) attention->mask = mask, attention->window = 64;
    }
    const Module module{.width = 512, .distinct_layers = {own}, .layers = {0}};
    for (const auto& [cp, ulysses] : {std::pair{2, 1}, {2, 2}, {4, 2}}) {
      const BlockSetting setting{.tp = 2, .cp = cp, .cp_ulysses = ulysses, .precision = Precision::kBf16};
      const BlockMemory program = program_memory(with_program(own, 2), setting, segments);
      const BlockMemory usual = memory_of(module, own, setting, segments);
      // Where heads are exchanged, a rank keeps its result as attention made it, too, which formulas do not count.
      EXPECT_LE(program.saved, (ulysses > 1 ? 1.05 : 1.01) * usual.saved) << "cp " << cp;
      EXPECT_GE(program.saved, 0.99 * usual.saved) << "cp " << cp;
      EXPECT_NEAR(program.saved_full, usual.saved_full, 0.01 * usual.saved_full);
      EXPECT_GT(program.workspace, 0);
    }
  }
}

TEST(ProgramMemory, GrowsWithRowsAndShrinksWithRanks) {
  const Block two = with_program(layer(true), 2), four = with_program(layer(true), 4);
  const BlockSetting of_two{.tp = 2, .precision = Precision::kBf16}, of_four{.tp = 4, .precision = Precision::kBf16};
  const double once = program_memory(two, of_two, {{256, 4}}).saved;
  EXPECT_DOUBLE_EQ(program_memory(two, of_two, {{256, 8}}).saved, 2 * once);
  EXPECT_LT(program_memory(four, of_four, {{256, 4}}).saved, once);
  EXPECT_EQ(program_memory(two, of_two, {}).saved, 0);
}

}  // namespace
}  // namespace weft::program_memory_test
