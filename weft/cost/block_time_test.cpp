#include "weft/cost/block_time.h"

#include <cmath>

#include <gtest/gtest.h>

#include "tests/support/cost/example_plan.h"
#include "tests/support/source_tree.h"
#include "weft/cost/block_memory.h"
#include "weft/program/program_strategy.h"
#include "weft/spec/scenario.h"
#include "weft/spec/work.h"

namespace weft {
namespace {

constexpr double kFlopsPerMs = 100e9;  // the ideal cluster's

Model scenario_model(const std::string& name) {
  return *Scenarios(source_tree() / "scenarios").model(name);
}

std::vector<const Block*> blocks_of(const Module& module) {
  std::vector<const Block*> blocks = {&module.entry, &module.exit};
  for (const Block& kind : module.distinct_layers) blocks.push_back(&kind);
  return blocks;
}

BlockSetting tensor_parallel(int64_t tp, bool sequence_parallel, double bytes_per_ms = 1e6) {
  BlockSetting setting{.tp = tp, .sequence_parallel = sequence_parallel, .overlap_tp = false};
  setting.tp_link = {.num_ranks = tp,
                     .ranks_per_node = tp,
                     .ring_bytes_per_ms = bytes_per_ms,
                     .within_bytes_per_ms = bytes_per_ms,
                     .latency_ms = 0};
  return setting;
}

TEST(BlockTime, ALayerWithExpertsAndTheUsualStrategyTakesWhatItTakesWithoutOne) {
  const Cluster cluster = ideal_cluster();
  const AnalyticTimes times(cluster);
  const Segments segments = {{1024, 2}};
  const Model model = scenario_model("qwen3-30b-a3b");
  const Module& llm = model.modules.back();
  for (const bool divides_rows : {false, true}) {
    for (const bool is_over_tp : {false, divides_rows}) {
      BlockSetting setting = tensor_parallel(4, divides_rows);
      setting.ep = 4;
      setting.experts_over_tp = is_over_tp;
      setting.ep_link = setting.balance_link = setting.tp_link;
      setting.balances_experts = true;
      const Result<Module> made = with_strategy(llm, {{llm.distinct_layers.front().name, {}}}, setting.tp);
      ASSERT_TRUE(made.ok()) << made.error().message();
      const BlockTime usual = times.time_of(llm, llm.distinct_layers.front(), setting, segments);
      const BlockTime own = times.time_of(*made, made->distinct_layers.front(), setting, segments);
      const auto expect_same = [&](const PassTime& a, const PassTime& b) {
        EXPECT_NEAR(a.compute_ms, b.compute_ms, 1e-9 * b.compute_ms);
        EXPECT_NEAR(a.ep_ms, b.ep_ms, 1e-9 * b.ep_ms);
      };
      expect_same(own.forward, usual.forward);
      expect_same(own.backward_input, usual.backward_input);
      expect_same(own.backward_weight, usual.backward_weight);
      // With times of a profile, too, experts are there.
      const ComputeRatios slow{.forward = 2, .backward_input = 3, .backward_weight = 4};
      const BlockTime usual_slow = times.time_of(llm, llm.distinct_layers.front(), setting, segments, slow);
      const BlockTime own_slow = times.time_of(*made, made->distinct_layers.front(), setting, segments, slow);
      expect_same(own_slow.forward, usual_slow.forward);
      expect_same(own_slow.backward_input, usual_slow.backward_input);
      expect_same(own_slow.backward_weight, usual_slow.backward_weight);
      EXPECT_GT(own_slow.forward.compute_ms, 1.9 * own.forward.compute_ms);
      EXPECT_GT(own.forward.ep_ms, 0);
      EXPECT_NEAR(own.forward.tp_ms, usual.forward.tp_ms, 1e-9 * usual.forward.tp_ms);
      EXPECT_NEAR(own.backward_input.tp_ms, usual.backward_input.tp_ms, 1e-9 * usual.backward_input.tp_ms);
    }
  }
}

TEST(BlockTime, WithContextParallelismTheUsualStrategyTakesWhatALayerTakesWithoutOne) {
  const Cluster cluster = ideal_cluster();
  const AnalyticTimes times(cluster);
  const Model model = scenario_model("qwen3-8b");
  const Module& llm = model.modules.back();
  for (const int64_t ulysses : {1, 2, 4}) {
    for (const bool divides_rows : {false, true}) {
      BlockSetting setting = tensor_parallel(2, divides_rows);
      setting.cp = 4;
      setting.cp_ulysses = ulysses;
      setting.cp_link = setting.ulysses_link = setting.ring_link = setting.tp_link;
      setting.ulysses_link.num_ranks = ulysses;
      setting.ring_link.num_ranks = 4 / ulysses;
      const Result<Module> made = with_strategy(llm, {{llm.distinct_layers.front().name, {}}}, setting.tp);
      ASSERT_TRUE(made.ok()) << made.error().message();
      const BlockTime usual = times.time_of(llm, llm.distinct_layers.front(), setting, {{4096, 2}});
      const BlockTime own = times.time_of(*made, made->distinct_layers.front(), setting, {{4096, 2}});
      for (const auto& [a, b] : {std::pair{own.forward, usual.forward}, {own.backward_input, usual.backward_input}}) {
        EXPECT_NEAR(a.compute_ms, b.compute_ms, 1e-9 * b.compute_ms);
        EXPECT_NEAR(a.tp_ms, b.tp_ms, 1e-9 * b.tp_ms);
        EXPECT_NEAR(a.cp_ms, b.cp_ms, 1e-9 * b.cp_ms);
        EXPECT_GT(a.cp_ms, 0);
      }
      // The same compute as measurements have it, at which more of a ring is hidden.
      const ComputeRatios slow{.forward = 2, .backward_input = 2, .backward_weight = 2};
      const BlockTime usual_slow = times.time_of(llm, llm.distinct_layers.front(), setting, {{4096, 2}}, slow);
      const BlockTime slow_own = times.time_of(*made, made->distinct_layers.front(), setting, {{4096, 2}}, slow);
      EXPECT_NEAR(slow_own.forward.compute_ms, 2 * own.forward.compute_ms, 1e-9 * own.forward.compute_ms);
      EXPECT_NEAR(slow_own.forward.cp_ms, usual_slow.forward.cp_ms, 1e-9 * own.forward.cp_ms);
      EXPECT_NEAR(slow_own.backward_input.cp_ms, usual_slow.backward_input.cp_ms, 1e-9 * own.backward_input.cp_ms);
    }
  }
}

TEST(BlockTime, AMachineThatLosesNothingTakesFlopsOverRate) {
  const Cluster cluster = ideal_cluster();
  const AnalyticTimes times(cluster);
  const Segments segments = {{1024, 1.5}, {300, 2}};
  for (const char* name : {"qwen2-vl-72b", "qwen2.5-vl-7b", "qwen2.5-omni-7b", "qwen3-30b-a3b", "llama3-8b"}) {
    const Model model = scenario_model(name);
    for (const Module& module : model.modules) {
      for (const Block* block : blocks_of(module)) {
        const BlockTime time = times.time_of(module, *block, {}, segments);
        double weight_flops = 0, input_flops = 0;
        for (const Op& op : block->ops) {
          weight_flops += weight_gradient_flops(op, segments);
          // Fused attention computes its scores once more: five products where the model has four.
          const double again = std::holds_alternative<Attention>(op.shape) ? 1.25 : 1;
          input_flops += again * input_gradient_flops(op, segments);
        }
        const std::string what = std::string(name) + " " + block->name;
        const double flops = forward_flops(*block, segments);
        EXPECT_NEAR(time.forward.total_ms() * kFlopsPerMs, flops, 1e-9 * flops + 1e-9) << what;
        EXPECT_NEAR(time.backward_weight.total_ms() * kFlopsPerMs, weight_flops, 1e-9 * weight_flops + 1e-9) << what;
        EXPECT_NEAR(time.backward_input.total_ms() * kFlopsPerMs, input_flops, 1e-9 * input_flops + 1e-9) << what;
        if (HasFailure()) return;
      }
    }
  }
}

TEST(BlockTime, TensorParallelismDividesComputeWhereItDividesHeadsAndWidths) {
  const Cluster cluster = ideal_cluster();
  const AnalyticTimes times(cluster);
  const Model model = scenario_model("llama3-8b");  // 32 heads, 8 key and value heads
  const Module& llm = *model.find(ModuleKind::kLlm);
  const Segments segments = {{2048, 1}};
  const Block& layer = llm.distinct_layers.front();
  const double whole = times.time_of(llm, layer, {}, segments).forward.compute_ms;
  for (const int64_t tp : {2, 4, 8}) {
    const BlockTime time = times.time_of(llm, layer, tensor_parallel(tp, true), segments);
    EXPECT_NEAR(time.forward.compute_ms, whole / static_cast<double>(tp), 1e-9 * whole);
  }
  // Beyond its heads, keys and values are copied, so more is left than a sixteenth.
  EXPECT_GT(times.time_of(llm, layer, tensor_parallel(16, true), segments).forward.compute_ms, whole / 16 * 1.01);
}

TEST(BlockTime, SequenceParallelismMovesTheSameBytesAndGathersOnceMoreForWeights) {
  const Cluster cluster = ideal_cluster();
  const AnalyticTimes times(cluster);
  const Model model = gpt_model({.width = 512, .heads = 8});
  const Module& llm = model.modules.front();
  const Segments segments = {{256, 2}};
  for (const int64_t tp : {2, 4, 8}) {
    const BlockTime plain = times.time_of(llm, llm.distinct_layers.front(), tensor_parallel(tp, false), segments);
    const BlockTime divided = times.time_of(llm, llm.distinct_layers.front(), tensor_parallel(tp, true), segments);
    // Two all-reduces of rows × width in half precision, each way: 2 · 2 · (tp − 1)/tp · 512 rows · 512 · 2 bytes.
    const double reduced = 4 * (1 - 1.0 / static_cast<double>(tp)) * 512 * 512 * 2 / 1e6;
    EXPECT_NEAR(plain.forward.tp_ms, reduced, 1e-9);
    EXPECT_NEAR(plain.backward_input.tp_ms, reduced, 1e-9);
    EXPECT_EQ(plain.backward_weight.tp_ms, 0);
    EXPECT_NEAR(divided.forward.tp_ms, reduced, 1e-9);
    EXPECT_NEAR(divided.backward_input.tp_ms, reduced, 1e-9);
    EXPECT_NEAR(divided.backward_weight.tp_ms, reduced / 2, 1e-9);
  }
}

TEST(BlockTime, DividedTablesAndLogitsAreSummedOverTheirRanks) {
  const Cluster cluster = ideal_cluster();
  const AnalyticTimes times(cluster);
  const Model model = gpt_model({.width = 512, .heads = 8});
  const Module& llm = model.modules.front();
  const Segments segments = {{256, 2}};
  const double pass = 0.75 * 512 * 512 * 2 / 1e6;  // 512 rows, tp 4
  const BlockTime entry = times.time_of(llm, llm.entry, tensor_parallel(4, false), segments);
  EXPECT_NEAR(entry.forward.tp_ms, 2 * pass, 1e-9) << "each rank knows some of the words: all-reduce";
  EXPECT_NEAR(times.time_of(llm, llm.entry, tensor_parallel(4, true), segments).forward.tp_ms, pass, 1e-9);
  // Cross entropy needs the largest logit, the sum of exponentials and the target's logit of every row, in fp32.
  const BlockTime exit = times.time_of(llm, llm.exit, tensor_parallel(4, false), segments);
  EXPECT_NEAR(exit.forward.tp_ms, 3 * 2 * 0.75 * 512 * 4 / 1e6, 1e-9);
}

TEST(BlockTime, OverlapHidesNoMoreThanItsShareOfTheComputeBeside) {
  Cluster cluster = ideal_cluster();
  cluster.efficiency.overlap = 0.75;
  const AnalyticTimes times(cluster);
  const Model model = gpt_model({.width = 512, .heads = 8});
  const Module& llm = model.modules.front();
  const Segments segments = {{256, 2}};
  for (const double bytes_per_ms : {1e4, 1e6, 1e7, 1e8, 1e10}) {
    BlockSetting setting = tensor_parallel(4, true, bytes_per_ms);
    const BlockTime open = times.time_of(llm, llm.distinct_layers.front(), setting, segments);
    setting.overlap_tp = true;
    const BlockTime hidden = times.time_of(llm, llm.distinct_layers.front(), setting, segments);
    const double open_ms = open.backward_input.tp_ms + open.backward_weight.tp_ms;
    const double hidden_ms = hidden.backward_input.tp_ms + hidden.backward_weight.tp_ms;
    const double compute_ms = open.backward_input.compute_ms + open.backward_weight.compute_ms;
    EXPECT_LT(hidden_ms, open_ms);
    EXPECT_GE(hidden_ms, open_ms - 0.75 * compute_ms - 1e-12);
    EXPECT_EQ(hidden.forward.tp_ms, open.forward.tp_ms) << "nothing stands beside the forward's";
  }
}

TEST(BlockTime, AHostThatIsSlowToStartKernelsDecides) {
  Cluster cluster = ideal_cluster();
  cluster.efficiency.host_us_per_kernel = 1e6;
  const AnalyticTimes times(cluster);
  const Model model = gpt_model({});
  const Module& llm = model.modules.front();
  // norm, qkv, attention, out, sum, norm, up, activation, down, sum.
  BlockTime time = times.time_of(llm, llm.distinct_layers.front(), {}, {{128, 1}});
  EXPECT_NEAR(time.forward.total_ms(), 10 * 1e3, 1e-6);
  // Unfused attention with dropout is four of them: scores, softmax, dropout, values.
  time = times.time_of(llm, llm.distinct_layers.front(), {.attention = AttentionKernel::kUnfused}, {{128, 1}});
  EXPECT_NEAR(time.forward.total_ms(), 13 * 1e3, 1e-6);
  EXPECT_NEAR(time.backward_weight.total_ms(), 4 * 1e3, 1e-6) << "four products have weights";
}

TEST(BlockTime, KernelsAndShortDimsCostExtra) {
  Cluster cluster = ideal_cluster();
  const Model model = gpt_model({.width = 256, .heads = 4});
  const Module& llm = model.modules.front();
  const Segments segments = {{128, 1}};
  const double ideal =
      AnalyticTimes(cluster).time_of(llm, llm.distinct_layers.front(), {}, segments).forward.total_ms();
  cluster.efficiency.kernel_us = 1000;
  const double with_kernels =
      AnalyticTimes(cluster).time_of(llm, llm.distinct_layers.front(), {}, segments).forward.total_ms();
  EXPECT_NEAR(with_kernels, ideal + 10, 1e-9) << "1 ms for each of ten kernels";
}

TEST(OpTime, AProductWhoseDimsAreThreeTimesTheHalfSizeTakesTwiceItsIdealTime) {
  DeviceRates rates{.flops_per_ms = 1e9, .bytes_per_ms = 1e30, .half_size = 100};
  EXPECT_NEAR(product_ms(rates, Precision::kBf16, 300, 300, 300), 2 * 2.0 * 300 * 300 * 300 / 1e9, 1e-12);
  rates.bytes_per_ms = 1;  // then memory decides: two bytes for each element of three matrices
  EXPECT_NEAR(product_ms(rates, Precision::kBf16, 10, 20, 30), 2.0 * (10 * 20 + 20 * 30 + 10 * 30), 1e-9);
  EXPECT_EQ(product_ms(rates, Precision::kBf16, 0, 20, 30), 0);
}

TEST(BlockTime, UnfusedAttentionComputesMaskedScoresTooAndMovesEveryScore) {
  Cluster cluster = ideal_cluster();
  cluster.device.memory_bandwidth_gb_per_s = 1000;
  const Model model = gpt_model({.width = 1024, .heads = 16});
  const Module& llm = model.modules.front();
  Block core{.name = "core", .ops = {}};
  for (const Op& op : llm.distinct_layers.front().ops) {
    if (std::holds_alternative<Attention>(op.shape)) core.ops.push_back(op);
  }
  ASSERT_EQ(core.ops.size(), 1u);
  const double s = 512, heads = 16, d = 64;
  const BlockTime time = AnalyticTimes(cluster).time_of(llm, core, {.attention = AttentionKernel::kUnfused}, {{s, 1}});
  const double flops_ms = 2 * 2 * s * s * d * heads / kFlopsPerMs;
  const double bytes_ms = 2 * (s * d + s * d + s * s) * 2 * heads / 1e9;
  // Softmax reads and writes a score in two bytes, dropout too, and writes a mask of one.
  const double scores_ms = heads * s * s * (4 + 4 + 1) / 1e9;
  EXPECT_NEAR(time.forward.total_ms(), std::max(flops_ms, bytes_ms) + scores_ms, 1e-9);
  // Going back, both products have two gradients, and softmax reads its output too.
  EXPECT_NEAR(time.backward_input.total_ms(), 2 * std::max(flops_ms, bytes_ms) + scores_ms + heads * s * s * 2 / 1e9,
              1e-9);
}

TEST(BlockTime, MoreNodesSlowComputeByAShareForEachDoubling) {
  Cluster cluster = ideal_cluster();
  cluster.efficiency.slowdown_per_doubling = 0.02;
  const Model model = gpt_model({});
  const Module& llm = model.modules.front();
  const Segments segments = {{512, 1}};
  const double one = AnalyticTimes(cluster).time_of(llm, llm.distinct_layers.front(), {}, segments).forward.total_ms();
  cluster.nodes = 16;
  const double sixteen =
      AnalyticTimes(cluster).time_of(llm, llm.distinct_layers.front(), {}, segments).forward.total_ms();
  EXPECT_NEAR(sixteen / one, 1.08, 1e-9);
}

TEST(BlockTime, NoTokensTakeNoTime) {
  Cluster cluster = ideal_cluster();
  cluster.efficiency.host_us_per_kernel = 10;
  const Model model = gpt_model({});
  const Module& llm = model.modules.front();
  EXPECT_EQ(AnalyticTimes(cluster).time_of(llm, llm.distinct_layers.front(), {}, {}).forward.total_ms(), 0);
}

TEST(BlockTime, ContextParallelismDividesTokensAndExchangesHeadsOrPassesKeysRound) {
  const Cluster cluster = ideal_cluster();
  const AnalyticTimes times(cluster);
  const Model model = gpt_model({.width = 512, .heads = 8});
  const Module& llm = model.modules.front();
  const Segments segments = {{1024, 1}};
  const double whole = times.time_of(llm, llm.distinct_layers.front(), {}, segments).forward.compute_ms;
  const GroupLink link{
      .num_ranks = 4, .ranks_per_node = 4, .ring_bytes_per_ms = 1e6, .within_bytes_per_ms = 1e6, .latency_ms = 0};
  BlockSetting ulysses{.cp = 4, .cp_ulysses = 4};
  ulysses.ulysses_link = link;
  BlockTime time = times.time_of(llm, llm.distinct_layers.front(), ulysses, segments);
  EXPECT_NEAR(time.forward.compute_ms, whole / 4, 1e-9);
  // Query, key and value go out, the output comes back; three quarters of 256 rows × 512 in two bytes travel.
  EXPECT_NEAR(time.forward.cp_ms, 4 * 0.75 * 256 * 512 * 2 / 1e6, 1e-9);
  EXPECT_EQ(time.attention.cp_ms, 0) << "what attention works on is kept when it is recomputed alone";
  BlockSetting ring{.cp = 4};
  ring.ring_link = link;
  time = times.time_of(llm, llm.distinct_layers.front(), ring, segments);
  // Keys and values pass three times; nothing hides them at an overlap of 0.
  EXPECT_NEAR(time.forward.cp_ms, 3 * 2 * 256 * 512 * 2 / 1e6, 1e-9);
  // Their gradients travel too. In the first two steps a rank that gets all keys of another sends half of its own.
  EXPECT_NEAR(time.backward_input.cp_ms, (1.5 + 1.5 + 2) / 3 * time.forward.cp_ms, 1e-9);
  EXPECT_NEAR(time.attention.cp_ms, time.forward.cp_ms, 1e-9) << "keys pass again when it is recomputed";
}

TEST(BlockTime, ARingsStepsAddKernelsAndJoinTheirResults) {
  Cluster cluster = ideal_cluster();
  cluster.device.memory_bandwidth_gb_per_s = 1e3;  // 1e9 bytes a ms
  const Model model = gpt_model({.width = 512, .heads = 8});
  const Module& llm = model.modules.front();
  Block core{.name = "core", .ops = {}};
  for (const Op& op : llm.distinct_layers.front().ops) {
    if (std::holds_alternative<Attention>(op.shape)) core.ops.push_back(op);
  }
  const Segments segments = {{1024, 2}};
  const double rate = kFlopsPerMs;
  const auto forward_ms = [&](int64_t cp, double kernel_us, double half_size) {
    cluster.efficiency.kernel_us = kernel_us;
    cluster.efficiency.matrix_half_size = half_size;
    return AnalyticTimes(cluster).time_of(llm, core, {.cp = cp}, segments).forward.compute_ms;
  };
  const double whole = forward_ms(1, 0, 0);
  // Three steps; of a causal block three quarters of 512 rows × 512 are joined: fp32 read and written, two bytes read.
  // As many keys and values are packed to be sent.
  const double joined = 3 * 0.75 * 512 * 512 * (8 + 2) / 1e9, packed = 3 * 0.75 * 512 * 1024 * 4 / 1e9;
  EXPECT_NEAR(forward_ms(4, 0, 0), whole / 4 + joined + packed, 1e-9);
  // A kernel as before; in each step four for each of two sequences, and two for sending.
  EXPECT_NEAR(forward_ms(4, 1000, 0) - forward_ms(4, 0, 0), 1 + 3 * (4 * 2 + 2), 1e-9);
  // Half a half size of scores more for each query and key: all of them in the own block, three quarters in the others.
  const double edges = 2 * 512 * (1 + 3 * 0.75);
  EXPECT_NEAR(forward_ms(4, 0, 128) - forward_ms(4, 0, 0), 4 * 64 * edges * 512 / rate, 1e-9);
}

TEST(BlockTime, ShortBlocksMakeContextParallelismDearer) {
  Cluster cluster = *Scenarios(source_tree() / "scenarios").cluster("dgx_h100");
  const Model model = scenario_model("llama3-8b");
  const Module& llm = *model.find(ModuleKind::kLlm);
  double before = 0;
  for (const int64_t cp : {1, 2, 4, 8}) {
    BlockSetting setting{.cp = cp};
    if (cp > 1)
      setting.ring_link = {.num_ranks = cp,
                           .ranks_per_node = cp,
                           .ring_bytes_per_ms = 3e8,
                           .within_bytes_per_ms = 3e8,
                           .latency_ms = 0.003};
    // As many rows a rank.
    const BlockTime time =
        AnalyticTimes(cluster).time_of(llm, llm.distinct_layers.front(), setting, {{4096, static_cast<double>(cp)}});
    const double ms = time.forward.total_ms() + time.backward_input.total_ms() + time.backward_weight.total_ms();
    EXPECT_GT(ms, before * 1.002) << "cp " << cp;
    before = ms;
  }
}

TEST(OpTime, TheBusiestOfManyRanksGetsMoreTheFewerChoicesThereAre) {
  EXPECT_EQ(busiest_rank(1, 100), 1);
  // √(2 ln 8 · 7/8 / 100)
  EXPECT_NEAR(busiest_rank(8, 100), 1.19076, 1e-4);
  EXPECT_NEAR(busiest_rank(8, 1e8), 1, 1e-3);
  EXPECT_GT(busiest_rank(64, 100), busiest_rank(8, 100));
}

TEST(OpTime, AMemoryBoundOperatorTakesItsPasses) {
  Cluster cluster = ideal_cluster();
  cluster.device.memory_bandwidth_gb_per_s = 1;
  cluster.efficiency.kernel_us = 1000;
  const Op norm{.name = "norm", .shape = Norm{.width = 500, .groups = 1}};
  const auto time_with = [&](double passes) {
    cluster.efficiency.passes_per_operator = passes;
    return analytic_time(norm, {}, rates_of(cluster, Precision::kBf16), {{1000, 1}}, 1000);
  };
  // 1,000 rows of 500 are read and written in two bytes at 1 MB/ms, and a kernel takes 1 ms.
  EXPECT_NEAR(time_with(1).forward_ms, 2 + 1, 1e-9);
  EXPECT_NEAR(time_with(3).forward_ms, 3 * (2 + 1), 1e-9);
  EXPECT_EQ(time_with(3).forward_kernels, 3);
}

TEST(OpTime, APowerLimitLeavesTheCubeRootOfTheRate) {
  Cluster cluster = ideal_cluster();
  const double whole = rates_of(cluster, Precision::kBf16).flops_per_ms;
  cluster.device.power_w = 800;
  EXPECT_EQ(rates_of(cluster, Precision::kBf16).flops_per_ms, whole);
  cluster.device.power_limit_w = 100;
  EXPECT_NEAR(rates_of(cluster, Precision::kBf16).flops_per_ms, whole / 2, 1e-6 * whole);
}

TEST(BlockTime, DividedRowsBecomeWholeWhereTheyArePooledAndWhereTheLlmTakesThemIn) {
  const Cluster cluster = ideal_cluster();
  const AnalyticTimes times(cluster);
  const Model model = scenario_model("qwen2.5-omni-7b");
  const Module& audio = *model.find(ModuleKind::kAudio);
  const double rows = 100 * audio.output_rows.value();
  const double pooled = 0.75 * 100 * static_cast<double>(audio.width) * 2 / 1e6;
  const double given = 0.75 * rows * static_cast<double>(audio.output_width) * 2 / 1e6;
  BlockSetting setting = tensor_parallel(4, true);
  const BlockTime exit = times.time_of(audio, audio.exit, setting, {{100, 1}});
  EXPECT_NEAR(exit.forward.tp_ms, pooled, 1e-9);
  EXPECT_NEAR(exit.backward_input.tp_ms, pooled, 1e-9);
  BlockTime output = output_time(cluster, audio, setting, {{100, 1}});
  EXPECT_NEAR(output.forward.tp_ms, given, 1e-9);
  EXPECT_EQ(output.backward_input.tp_ms, 0) << "each rank keeps its part of the gradients that it is given";
  EXPECT_EQ(times.time_of(audio, audio.exit, tensor_parallel(4, false), {{100, 1}}).forward.tp_ms, 0);
  EXPECT_EQ(output_time(cluster, audio, tensor_parallel(4, false), {{100, 1}}).forward.tp_ms, 0);
  // Inside the pipeline they go on to the tokens of other context-parallel ranks: of 50 rows' half, half.
  setting = {.cp = 2, .gives_media_rows = true};
  setting.cp_link = {
      .num_ranks = 2, .ranks_per_node = 2, .ring_bytes_per_ms = 1e6, .within_bytes_per_ms = 1e6, .latency_ms = 0};
  output = output_time(cluster, audio, setting, {{100, 1}});
  EXPECT_NEAR(output.forward.cp_ms, 0.5 * rows / 2 * static_cast<double>(audio.output_width) * 2 / 1e6, 1e-9);
  EXPECT_NEAR(output.backward_input.cp_ms, output.forward.cp_ms, 1e-9) << "and their gradients come back";
}

TEST(BlockTime, RowsOfEncodersArePlacedAmongWholeRowsOfAnEmbedding) {
  const Cluster cluster = ideal_cluster();
  const AnalyticTimes times(cluster);
  const Model model = gpt_model({.width = 512, .heads = 8});
  const Module& llm = model.modules.front();
  const double pass = 0.75 * 100 * 512 * 2 / 1e6;
  BlockSetting setting = tensor_parallel(4, true);
  EXPECT_NEAR(times.time_of(llm, llm.entry, setting, {{100, 1}}).forward.tp_ms, pass, 1e-9);
  setting.places_whole_rows = true;
  const BlockTime placed = times.time_of(llm, llm.entry, setting, {{100, 1}});
  EXPECT_NEAR(placed.forward.tp_ms, 2 * pass, 1e-9) << "summed whole, then divided";
  EXPECT_NEAR(placed.backward_input.tp_ms, pass, 1e-9);
  EXPECT_EQ(placed.backward_weight.tp_ms, 0);
}

TEST(BlockTime, ExpertsReceiveTheirTokensAndSendThemBack) {
  const Cluster cluster = ideal_cluster();
  const Model model = scenario_model("qwen3-30b-a3b");  // width 2048, 8 experts a token
  const Module& llm = *model.find(ModuleKind::kLlm);
  BlockSetting setting{.ep = 8};
  setting.ep_link = {
      .num_ranks = 8, .ranks_per_node = 8, .ring_bytes_per_ms = 1e6, .within_bytes_per_ms = 1e6, .latency_ms = 0};
  const BlockTime time = AnalyticTimes(cluster).time_of(llm, llm.distinct_layers.front(), setting, {{100, 1}});
  const double one_way_ms = 7.0 / 8 * 100 * 8 * 2048 * 2 / 1e6 * busiest_rank(8, 800);
  const double counts_ms = 7.0 / 8 * 128 * 8 / 1e6;  // rows for each of 128 experts, told before rows go
  EXPECT_NEAR(time.forward.ep_ms, 2 * one_way_ms + counts_ms, 1e-9);
  EXPECT_NEAR(time.backward_input.ep_ms, 2 * one_way_ms, 1e-9);
}

TEST(BlockTime, TensorParallelRanksOfExpertsMoveRowsOnceAndExchangeThemAll) {
  const Cluster cluster = ideal_cluster();
  const AnalyticTimes times(cluster);
  const Model model = scenario_model("qwen3-30b-a3b");  // width 2048, 8 experts a token
  const Module& llm = *model.find(ModuleKind::kLlm);
  const double pass = 0.75 * 100 * 2048 * 2 / 1e6;  // 100 rows, tp 4
  for (const bool divides_rows : {false, true}) {
    BlockSetting setting = tensor_parallel(4, divides_rows);
    const BlockTime alone = times.time_of(llm, llm.distinct_layers.front(), setting, {{100, 1}});
    EXPECT_NEAR(alone.forward.tp_ms, 4 * pass, 1e-9) << "around attention and around experts";
    EXPECT_NEAR(alone.backward_input.tp_ms, 4 * pass, 1e-9);
    EXPECT_NEAR(alone.backward_weight.tp_ms, divides_rows ? pass : 0, 1e-9) << "again for attention, not for experts";
    setting.ep = 8;
    setting.ep_link = {
        .num_ranks = 8, .ranks_per_node = 8, .ring_bytes_per_ms = 1e6, .within_bytes_per_ms = 1e6, .latency_ms = 0};
    EXPECT_NEAR(times.time_of(llm, llm.distinct_layers.front(), setting, {{100, 1}}).forward.ep_ms,
                2 * 7.0 / 8 * 100 * 8 * 2048 * 2 / 1e6 * busiest_rank(8, 800) + 7.0 / 8 * 128 * 8 / 1e6, 1e-9)
        << "every tensor-parallel rank has whole rows";
  }
}

TEST(BlockTime, ExpertsOverTensorParallelRanksExchangeOnlyTheRowsOfEach) {
  const Cluster cluster = ideal_cluster();
  const AnalyticTimes times(cluster);
  const Model model = scenario_model("qwen3-30b-a3b");  // width 2048, 8 experts a token
  const Module& llm = *model.find(ModuleKind::kLlm);
  BlockSetting setting = tensor_parallel(4, true);
  setting.ep = 8;
  setting.ep_link = {
      .num_ranks = 8, .ranks_per_node = 8, .ring_bytes_per_ms = 1e6, .within_bytes_per_ms = 1e6, .latency_ms = 0};
  const BlockTime cut = times.time_of(llm, llm.distinct_layers.front(), setting, {{1000, 1000}});
  setting.experts_over_tp = true;
  const BlockTime whole = times.time_of(llm, llm.distinct_layers.front(), setting, {{1000, 1000}});
  // Of so many rows the busiest rank gets hardly more than the mean.
  EXPECT_NEAR(whole.forward.ep_ms, cut.forward.ep_ms / 4, 0.002 * whole.forward.ep_ms);
  EXPECT_NEAR(whole.forward.tp_ms, cut.forward.tp_ms / 2, 1e-9 * cut.forward.tp_ms) << "only around attention";
  EXPECT_NEAR(whole.backward_input.tp_ms, cut.backward_input.tp_ms / 2, 1e-9 * cut.backward_input.tp_ms);
  EXPECT_NEAR(whole.forward.compute_ms, cut.forward.compute_ms, 0.02 * cut.forward.compute_ms) << "but for the router";
  EXPECT_EQ(local_parameters(llm.distinct_layers.front(), setting).expert, int64_t{128} / 8 * 3 * 2048 * 768)
      << "whole experts, fewer of them than ep alone would leave";
}

}  // namespace
}  // namespace weft
