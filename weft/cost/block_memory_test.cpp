#include "weft/cost/block_memory.h"

#include <gtest/gtest.h>

#include "tests/support/cost/example_plan.h"
#include "tests/support/source_tree.h"
#include "weft/cost/program_memory.h"
#include "weft/plan/head_limit.h"
#include "weft/program/program_strategy.h"
#include "weft/spec/scenario.h"
#include "weft/spec/work.h"

namespace weft {
namespace {

struct LayerCase {
  double s, b, h, a, t;
};

const std::vector<LayerCase> kLayers = {{2048, 4, 6144, 64, 8}, {2048, 1, 12288, 96, 8}, {2048, 1, 20480, 128, 8},
                                        {512, 3, 1024, 16, 2},  {128, 2, 768, 12, 4},    {1024, 1, 2048, 32, 1}};

BlockMemory gpt_layer_memory(const LayerCase& c, bool sequence_parallel) {
  const Model model = gpt_model({.width = static_cast<int64_t>(c.h), .heads = static_cast<int64_t>(c.a)});
  const Module& llm = model.modules.front();
  return memory_of(
      llm, llm.distinct_layers.front(),
      {.tp = static_cast<int64_t>(c.t), .sequence_parallel = sequence_parallel, .attention = AttentionKernel::kUnfused},
      {{c.s, c.b}});
}

// "Reducing Activation Recomputation in Large Transformer Models", equations 2 and 4 and table 2; the paper leaves the
// norms' statistics out.

TEST(BlockMemory, AGptLayerWithTensorParallelismKeepsThePublishedBytes) {
  for (const LayerCase& c : kLayers) {
    const BlockMemory memory = gpt_layer_memory(c, false);
    EXPECT_DOUBLE_EQ(memory.saved - memory.statistics, c.s * c.b * c.h * (10 + 24 / c.t + 5 * c.a * c.s / (c.h * c.t)));
  }
}

TEST(BlockMemory, SequenceParallelismDividesEverything) {
  for (const LayerCase& c : kLayers) {
    const BlockMemory memory = gpt_layer_memory(c, true);
    EXPECT_DOUBLE_EQ(memory.saved - memory.statistics, c.s * c.b * c.h / c.t * (34 + 5 * c.a * c.s / c.h));
    EXPECT_DOUBLE_EQ(memory.saved_selective - memory.statistics, 34 * c.s * c.b * c.h / c.t);
    EXPECT_DOUBLE_EQ(memory.saved_full, 2 * c.s * c.b * c.h / c.t);
  }
}

TEST(BlockMemory, ExpertsKeepTheSameBehindAProgram) {
  const Model model = *Scenarios(source_tree() / "scenarios").model("qwen3-30b-a3b");
  const Module& llm = model.modules.back();
  const Result<Module> made = with_strategy(llm, {{llm.distinct_layers.front().name, {}}}, 4);
  ASSERT_TRUE(made.ok()) << made.error().message();
  const Block& layer = made->distinct_layers.front();
  Block rest = llm.distinct_layers.front();
  rest.ops.erase(rest.ops.begin(), rest.ops.begin() + static_cast<std::ptrdiff_t>(num_in_program(layer)));
  const Segments segments = {{1024, 2}};
  for (const bool divides_rows : {false, true}) {
    const BlockSetting setting{.tp = 4, .ep = 2, .sequence_parallel = divides_rows};
    const BlockMemory all = memory_of(*made, layer, setting, segments);
    const BlockMemory first = program_memory(layer, setting, segments);
    const BlockMemory behind = memory_of(llm, rest, setting, segments);
    EXPECT_DOUBLE_EQ(all.saved, first.saved + behind.saved);
    EXPECT_DOUBLE_EQ(all.statistics, behind.statistics);
    EXPECT_DOUBLE_EQ(all.deferred, first.deferred + behind.deferred);
    EXPECT_DOUBLE_EQ(all.workspace, std::max(first.workspace, behind.workspace));
    EXPECT_DOUBLE_EQ(all.saved_full, first.saved_full);
    EXPECT_GT(behind.saved, 0);
  }
}

TEST(BlockMemory, RecomputingMoreKeepsNoMore) {
  for (const char* name : {"qwen2-vl-7b", "qwen2.5-omni-7b", "qwen3-30b-a3b"}) {
    const Model model = *Scenarios(source_tree() / "scenarios").model(name);
    for (const Module& module : model.modules) {
      for (const Block& block : module.distinct_layers) {
        for (const AttentionKernel kernel : {AttentionKernel::kFused, AttentionKernel::kUnfused}) {
          const BlockMemory memory = memory_of(module, block, {.tp = 2, .attention = kernel}, {{700, 3}});
          EXPECT_LE(memory.saved_selective, memory.saved) << name << " " << block.name;
          EXPECT_LT(memory.saved_full, memory.saved_selective) << name << " " << block.name;
          EXPECT_GT(memory.saved_full, 0);
        }
      }
    }
  }
}

TEST(BlockMemory, OneRankWithFusedAttentionKeepsWhatTheModelsDescriptionSays) {
  for (const char* name : {"qwen2-vl-7b", "qwen2.5-omni-7b", "llama3-8b", "qwen3-30b-a3b"}) {
    const Model model = *Scenarios(source_tree() / "scenarios").model(name);
    for (const Module& module : model.modules) {
      for (const Block& block : module.distinct_layers) {
        EXPECT_NEAR(memory_of(module, block, {}, {{600, 2}}).saved,
                    1200 * saved_bytes_per_token(block, Precision::kBf16), 1e-3)
            << name << " " << block.name;
      }
    }
  }
}

TEST(BlockMemory, ADeferredWeightGradientKeepsItsInputAndTheOutputsGradient) {
  const Module module{.width = 10};
  Block block{.name = "product",
              .ops = {{.name = "product", .shape = Matmul{.in = 10, .out = 30}, .saved = {.whole = 10}}}};
  BlockMemory memory = memory_of(module, block, {}, {{100, 1}});
  EXPECT_EQ(memory.saved, 100 * 10 * 2);
  EXPECT_EQ(memory.deferred, 100 * (10 + 30) * 2);
  // What only the input gradient reads is not among it.
  block.ops.push_back(
      {.name = "sum", .shape = Pointwise{.elements_in = 30, .elements_out = 30}, .saved = {.whole = 20}});
  memory = memory_of(module, block, {}, {{100, 1}});
  EXPECT_EQ(memory.saved, 100 * (10 + 20) * 2);
  EXPECT_EQ(memory.deferred, 100 * (10 + 30) * 2);
}

/// Of all tp ranks together, with what is not divided counted once.
int64_t joined_parameters(const Block& block, const BlockSetting& setting) {
  int64_t total = 0;
  for (const Op& op : block.ops) {
    const int64_t local = local_parameters(op, setting.share()).total();
    if (op.split() == TensorSplit::kWhole || op.split() == TensorSplit::kInside) {
      EXPECT_EQ(local, num_parameters(op)) << op.name;
      total += local;
    } else if (std::holds_alternative<Matmul>(op.shape) && op.split() == TensorSplit::kRow) {
      const int64_t bias = std::get<Matmul>(op.shape).bias_elements * (std::get<Matmul>(op.shape).experts / setting.ep);
      total += setting.tp * (local - bias) + bias;
    } else {
      total += setting.tp * local;
    }
  }
  return total;
}

TEST(LocalParameters, RanksTogetherHoldTheModelOnceWhereEverythingDivides) {
  const Scenarios scenarios(source_tree() / "scenarios");
  for (const char* name : {"llama3-8b", "llama3-70b", "qwen3-8b"}) {  // eight key and value heads each
    const Model model = *scenarios.model(name);
    const Module& llm = *model.find(ModuleKind::kLlm);
    for (const int64_t tp : {1, 2, 4, 8}) {
      EXPECT_EQ(joined_parameters(llm.distinct_layers.front(), {.tp = tp}), num_parameters(llm.distinct_layers.front()))
          << name << " tp " << tp;
      EXPECT_EQ(joined_parameters(llm.entry, {.tp = tp}), num_parameters(llm.entry)) << name << " tp " << tp;
      EXPECT_EQ(joined_parameters(llm.exit, {.tp = tp}), num_parameters(llm.exit)) << name << " tp " << tp;
    }
  }
}

TEST(LocalParameters, RanksTogetherNeverHoldLessThanTheModel) {
  const Scenarios scenarios(source_tree() / "scenarios");
  for (const std::string& name : scenarios.names("models")) {
    const Model model = *scenarios.model(name);
    for (const Module& module : model.modules) {
      for (const Block& block : module.distinct_layers) {
        for (int64_t tp = 1; tp <= 16 && head_limit(module).allows(tp, 1); ++tp)
          EXPECT_GE(tp * local_parameters(block, {.tp = tp}).total(), num_parameters(block)) << name << " tp " << tp;
      }
    }
  }
}

TEST(LocalParameters, ExpertsAreDividedByEpAndCountedApart) {
  const Model model = *Scenarios(source_tree() / "scenarios").model("qwen3-30b-a3b");
  const Block& layer = model.find(ModuleKind::kLlm)->distinct_layers.front();
  const LocalParameters whole = local_parameters(layer, {});
  // 128 experts of three 2048 × 768 matrices.
  EXPECT_EQ(whole.expert, int64_t{128} * 3 * 2048 * 768);
  EXPECT_EQ(whole.total(), num_parameters(layer));
  const LocalParameters eighth = local_parameters(layer, {.ep = 8});
  EXPECT_EQ(eighth.expert, whole.expert / 8);
  EXPECT_EQ(eighth.dense, whole.dense);
}

}  // namespace
}  // namespace weft
