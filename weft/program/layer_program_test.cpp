#include "weft/program/layer_program.h"

#include <map>

#include <gtest/gtest.h>

#include "weft/program/adapter_ops.h"
#include "weft/program/program_strategy.h"
#include "weft/program/transformer_block.h"

namespace weft {
namespace {

std::vector<TransformerBlockShape> layer_shapes() {
  const Attention heads{.heads = 8, .kv_heads = 4, .head_dim = 4, .mask = Mask::kCausal};
  TransformerBlockShape gated{
      .name = "layer", .width = 32, .attention = {.attention = heads}, .mlp = {.intermediate = 24}};
  TransformerBlockShape normed = gated;
  normed.attention.norms_heads = true;
  TransformerBlockShape plain = gated;
  plain.norm = NormKind::kLayer;
  plain.attention.has_rotary = false;
  plain.attention.q_bias = 32, plain.attention.k_bias = plain.attention.v_bias = 16, plain.attention.out_bias = 32;
  plain.mlp.is_gated = false, plain.mlp.has_bias = true;
  plain.dropout = {.in_attention = 0.1, .behind_attention = 0.1, .in_mlp = 0.1, .behind_mlp = 0.1};
  return {gated, normed, plain};
}

Module module_of(const TransformerBlockShape& shape) {
  Module module{.width = shape.width, .distinct_layers = {make_transformer_block(shape)}, .layers = {0}};
  for (Op& op : module.distinct_layers.front().ops) {
    if (has_weights(op)) op.weights = std::make_shared<const OpWeights>(OpWeights{.names = {op.name}});
  }
  return module;
}

/// What tensor parallelism cuts of a weight where an operator is declared so.
std::optional<size_t> declared_cut(const Op& op) {
  if (!std::holds_alternative<Matmul>(op.shape)) return std::nullopt;
  if (op.split() == TensorSplit::kColumn) return 0;
  return op.split() == TensorSplit::kRow ? std::optional<size_t>(1) : std::nullopt;
}

TEST(LayerProgram, UsualChoicesHoldWeightsAsLayersDeclare) {
  for (const TransformerBlockShape& shape : layer_shapes()) {
    const Result<Module> made = with_strategy(module_of(shape), {{"layer", {}}}, 2);
    ASSERT_TRUE(made.ok()) << made.error().message();
    for (const Op& op : made->distinct_layers.front().ops) {
      if (!op.weights) continue;
      ASSERT_TRUE(op.held.has_value()) << op.name;
      const std::optional<size_t> dim = op.held->weight ? std::optional(op.held->weight->dim) : std::nullopt;
      EXPECT_EQ(dim, declared_cut(op)) << op.name;
      EXPECT_EQ(op.held->bias.has_value(), declared_cut(op) == 0 && std::get<Matmul>(op.shape).bias_elements > 0)
          << op.name;
    }
  }
}

TEST(LayerProgram, WithoutItsStrategyALayerIsTheDeclaredOne) {
  for (const TransformerBlockShape& shape : layer_shapes()) {
    const Module usual = module_of(shape);
    const Block before = usual.distinct_layers.front();
    const Block after = without_strategy(with_strategy(usual, {{"layer", {}}}, 2)->distinct_layers.front());
    EXPECT_EQ(after.name, before.name);
    EXPECT_EQ(after.program, nullptr);
    ASSERT_EQ(after.ops.size(), before.ops.size());
    for (size_t i = 0; i < after.ops.size(); ++i) {
      EXPECT_EQ(after.ops[i].name, before.ops[i].name);
      EXPECT_FALSE(before.ops[i].held.has_value());
      EXPECT_FALSE(after.ops[i].held.has_value());
    }
  }
}

TEST(LayerProgram, SaysInWordsWhatOperatorsDoInsteadOfTheUsual) {
  const auto words = [&](const std::vector<StrategyEntry>& entries) {
    return with_strategy(module_of(layer_shapes().front()), {{"layer", entries}}, 2)
        ->distinct_layers.front()
        .program->words;
  };
  EXPECT_EQ(words({}), "usual");
  const std::string rows = words({{.pattern = "mlp.*", .words = {{"tp", "cut s"}}}});
  EXPECT_NE(rows.find("mlp.down cut s"), std::string::npos) << rows;
  EXPECT_EQ(rows.find("qkv"), std::string::npos) << rows;
}

TEST(LayerProgram, RowsBetweenBlocksAreWholeOrDivided) {
  const Result<Module> made = with_strategy(module_of(layer_shapes().front()), {{"layer", {}}}, 2);
  ASSERT_TRUE(made.ok()) << made.error().message();
  const BlockProgram& block = *made->distinct_layers.front().program;
  EXPECT_TRUE(block.is_layer());
  for (const bool divides_rows : {false, true}) {
    const RunStrategy strategy = run_strategy(block, divides_rows);
    const AxisState between = divides_rows ? AxisState::shard(1) : AxisState::replicated();
    EXPECT_EQ(strategy.sources[*block.carried_in], std::vector<AxisState>{between});
    const Operator& last = block.program.operators.back();
    EXPECT_EQ(last.result, *block.carried_out);
    EXPECT_EQ(states_of(last.rule, strategy.operators.back().front()).result, between);
  }
  // What a strategy says is the same in both.
  const Result<Module> pinned = with_strategy(module_of(layer_shapes().front()),
                                              {{"layer", {{.pattern = "mlp.norm", .words = {{"tp", "same"}}}}}}, 2);
  const BlockProgram& own = *pinned->distinct_layers.front().program;
  const size_t norm = *own.program.find_operator("mlp.norm");
  EXPECT_EQ(own.divided[norm], Choice::same());
  EXPECT_NE(block.divided[norm], Choice::same());
}

TEST(LayerProgram, GatesLieInSharesThatRanksHaveNearlyAsManyOf) {
  const auto shares = [](int64_t width, int64_t tp) {
    TransformerBlockShape shape = layer_shapes().front();
    shape.mlp.intermediate = width;
    const Module made = *with_strategy(module_of(shape), {{"layer", {}}}, tp);
    return op_named(made.distinct_layers.front(), "mlp.gate_up").held->shares;
  };
  EXPECT_EQ(shares(24, 2), 2);
  EXPECT_EQ(shares(14336, 8), 8);
  EXPECT_EQ(shares(14336, 3), 56);
  EXPECT_EQ(shares(43, 2), 43);
}

TEST(LayerProgram, RowsThatTheExitMergesAreDividedOneByOne) {
  Module module = module_of(layer_shapes().front());
  module.exit.ops.push_back({.name = "merger.up",
                             .shape = Matmul{.in = 4 * module.width, .out = module.width},
                             .rows = {.numerator = 1, .denominator = 4}});
  const Result<BlockProgram> block = layer_program(module, 0, 2);
  ASSERT_TRUE(block.ok()) << block.error().message();
  const ProgramDim& rows = block->program.dims[block->rows.sample_dim];
  EXPECT_EQ(rows.unit, 1);
  EXPECT_EQ(rows.length, 2);
}

TEST(LayerProgram, ElementsInsideOfAnMlpAreDroppedBehindItsActivation) {
  for (TransformerBlockShape shape : layer_shapes()) {
    shape.dropout.in_mlp = 0.25;
    const Result<BlockProgram> block = layer_program(module_of(shape), 0, 2);
    ASSERT_TRUE(block.ok()) << block.error().message();
    const Program& program = block->program;
    const size_t activation = *program.find_operator("mlp.activation");
    const Operator& drops = program.operators[activation + 1];
    EXPECT_EQ(drops.name, "mlp.activation.dropout");
    EXPECT_EQ(drops.kind, OperatorKind::kDropout);
    EXPECT_EQ(drops.calculation.dropout, 0.25);
    EXPECT_EQ(drops.operands.front(), program.operators[activation].result);
    EXPECT_EQ(program.operators[*program.find_operator("mlp.down")].operands.front(), drops.result);
    // Usually each rank drops elements of its part.
    EXPECT_EQ(block->choices[activation + 1], block->choices[activation]);
    EXPECT_NE(block->choices[activation + 1], Choice::same());
  }
}

TransformerBlockShape expert_shape() {
  TransformerBlockShape experts = layer_shapes()[1];
  experts.mlp.experts = 4, experts.mlp.experts_per_token = 2;
  return experts;
}

TEST(LayerProgram, EndsBeforeExperts) {
  for (const std::optional<double> scale : {std::optional<double>(), std::optional(0.1)}) {
    TransformerBlockShape shape = expert_shape();
    shape.scale = scale;
    const Result<Module> made = with_strategy(module_of(shape), {{"layer", {}}}, 2);
    ASSERT_TRUE(made.ok()) << made.error().message();
    const Block& layer = made->distinct_layers.front();
    const size_t num_ops = num_in_program(layer);
    ASSERT_LT(num_ops, layer.ops.size());
    EXPECT_EQ(layer.ops[num_ops - 1].name, "attention.sum");
    EXPECT_EQ(layer.ops[num_ops].name, "mlp.norm");
    // What it ends in gives rows as they lie between blocks.
    const BlockProgram& block = *layer.program;
    EXPECT_EQ(block.program.operators[block.num_own - 1].name, "attention.sum");
    EXPECT_EQ(block.program.operators.size(), block.num_own + 1);
    EXPECT_EQ(*block.carried_out, block.program.operators.back().result);
    // The other half is held as without a strategy.
    for (size_t i = 0; i < layer.ops.size(); ++i)
      EXPECT_EQ(layer.ops[i].held.has_value(), i < num_ops && layer.ops[i].weights) << layer.ops[i].name;
  }
  const Module dense = *with_strategy(module_of(layer_shapes().front()), {{"layer", {}}}, 2);
  const Block& layer = dense.distinct_layers.front();
  EXPECT_EQ(num_in_program(layer), layer.ops.size());
  EXPECT_EQ(num_in_program(module_of(expert_shape()).distinct_layers.front()), 0u);
}

TEST(LayerProgram, NoPatternFitsWhatComesBehindIt) {
  const Module module = module_of(expert_shape());
  for (const auto& [pattern, fits] : std::map<std::string, std::string>{{"mlp.norm", "mlp.norm"},
                                                                        {"moe.router", "moe.router"},
                                                                        {"moe.*", "moe.router"},
                                                                        {"mlp.down", "mlp.down"},
                                                                        {"*norm", "mlp.norm"},
                                                                        {"*", "mlp.norm"}}) {
    const Result<Module> made =
        with_strategy(module, {{"layer", {{.pattern = pattern, .words = {{"tp", "same"}}}}}}, 2);
    ASSERT_FALSE(made.ok()) << pattern;
    EXPECT_EQ(made.error().field, "layer." + pattern);
    EXPECT_TRUE(made.error().problem.starts_with("fits " + fits + ", an operator of the half")) << made.error().problem;
    EXPECT_TRUE(made.error().advice.starts_with("Name attention.norm, attention.qkv,")) << made.error().advice;
  }
  for (const char* pattern : {"attention.*", "attention.norm", "*.qkv"})
    EXPECT_TRUE(with_strategy(module, {{"layer", {{.pattern = pattern, .words = {{"tp", "same"}}}}}}, 2).ok())
        << pattern;
  const Result<Module> unknown =
      with_strategy(module, {{"layer", {{.pattern = "attention.up", .words = {{"tp", "same"}}}}}}, 2);
  ASSERT_FALSE(unknown.ok());
  EXPECT_TRUE(unknown.error().problem.starts_with("no operator of layer fits")) << unknown.error().problem;
}

TEST(LayerProgram, WhatHasNoProgramIsNamed) {
  Module adapted = module_of(layer_shapes().front());
  Op adapter = adapted.distinct_layers.front().ops.front();
  adapter.name = "mlp.down" + std::string(kAdapterDown);
  adapted.distinct_layers.front().ops.push_back(adapter);
  EXPECT_NE(layer_program(adapted, 0, 2).error().message().find("has adapters"), std::string::npos);
  Module own = module_of(layer_shapes().front());
  own.distinct_layers.front().layer = "mine";
  EXPECT_NE(layer_program(own, 0, 2).error().message().find("a library's own layer"), std::string::npos);
}

}  // namespace
}  // namespace weft
