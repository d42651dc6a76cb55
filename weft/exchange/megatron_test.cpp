#include <gtest/gtest.h>

#include "tests/support/exchange/plans_to_export.h"

namespace weft {
namespace {

void expect_refused(const Plan& plan, const std::string& message) {
  expect_refused(plan, Target::kMegatron, message);
}

void expect_has(const Plan& plan, const std::string& part) {
  const std::string line = outcome(plan, Target::kMegatron);
  EXPECT_NE(line.find(part), std::string::npos) << "no '" << part << "' in " << line;
}

void expect_lacks(const Plan& plan, const std::string& part) {
  const std::string line = outcome(plan, Target::kMegatron);
  EXPECT_EQ(line.substr(0, 2), "--") << line;
  EXPECT_EQ(line.find(part), std::string::npos) << "'" << part << "' in " << line;
}

/// Llama 3 8B as one pipeline.
Plan piped(const std::vector<std::vector<int64_t>>& layers) {
  Plan plan = llama_plan();
  reshape(plan, 1, 1, static_cast<int64_t>(layers.size()), 1, layers);
  return plan;
}

TEST(MegatronExport, WritesOneArgumentLine) {
  EXPECT_EQ(outcome(llama_plan(), Target::kMegatron),
            "--tensor-model-parallel-size 2 --sequence-parallel --pipeline-model-parallel-size 2 "
            "--context-parallel-size 1 --micro-batch-size 1 --global-batch-size 32 --use-distributed-optimizer "
            "--overlap-grad-reduce --overlap-param-gather --ddp-bucket-size 16000000 --bf16 "
            "--accumulate-allreduce-grads-in-fp32\n");
  EXPECT_EQ(export_plan(llama_plan(), Target::kMegatron)->front().name, "megatron_args.txt");
}

TEST(MegatronExport, GivesUnevenStagesALayout) {
  expect_has(piped({{7}, {9}, {9}, {7}}), " --pipeline-model-parallel-layout \"Et*7|t*9|t*9|t*7L\" ");
  expect_lacks(piped({{8}, {8}, {8}, {8}}), "layout");
}

TEST(MegatronExport, InterleavesByLayersPerStageOrByLayout) {
  expect_has(piped({{8, 8}, {8, 8}}), " --pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 8 ");
  expect_has(piped({{8, 8}, {9, 7}}), " --pipeline-model-parallel-layout \"Et*8|t*9|t*8|t*7L\" ");
  expect_lacks(piped({{8, 8}, {9, 7}}), "--num-layers-per-virtual-pipeline-stage");
}

TEST(MegatronExport, NamesTheKindOfContextParallelism) {
  Plan plan = shipped_plan("llama3-8b_cp4_ulysses2");
  expect_has(plan, "--context-parallel-size 4 --cp-comm-type a2a+p2p --hierarchical-context-parallel-sizes 2 2 ");
  llm_of(plan).cp_ulysses = 1;
  expect_has(plan, "--context-parallel-size 4 --cp-comm-type p2p --micro");
  llm_of(plan).cp_ulysses = 4;
  expect_has(plan, "--context-parallel-size 4 --cp-comm-type a2a --micro");
}

TEST(MegatronExport, SpreadsExperts) {
  Plan plan = shipped_plan("qwen3-30b-a3b_zb_h1_ep8");
  plan.schedule.name = "1f1b";
  expect_has(plan, "--expert-model-parallel-size 8 --moe-token-dispatcher-type alltoall ");
  llm_of(plan).axis_order = {"tp", "cp", "pp", "dp"};
  expect_refused(plan, "modules.llm.axis_order: is [tp, cp, pp, dp], but with ep 8 Megatron-LM");
}

TEST(MegatronExport, ExpertsUnderTensorParallelismNeedSequenceParallelism) {
  Plan plan = shipped_plan("qwen3-30b-a3b_zb_h1_ep8");
  reshape(plan, 2, 1, 1, 8, {{48}});
  expect_has(plan, "--expert-model-parallel-size 8 ");
  expect_lacks(plan, "--expert-tensor-parallel-size");
  llm_of(plan).experts_over_tp = true;
  llm_of(plan).ep = 16;
  expect_has(plan, "--moe-token-dispatcher-type alltoall --expert-tensor-parallel-size 1 ");
  llm_of(plan).experts_over_tp = false;
  llm_of(plan).ep = 8;
  llm_of(plan).sequence_parallel = false;
  expect_refused(plan, "modules.llm.sequence_parallel: is off, but with tp 2 and ep 8");
}

TEST(MegatronExport, RecomputesOneNumberOfBlocksInEveryStage) {
  Plan plan = piped({{7}, {9}, {9}, {7}});
  const auto recompute = [&](std::vector<RecomputeCounts> counts) {
    auto& rows = llm_of(plan).recompute;
    rows.clear();
    for (const RecomputeCounts& count : counts) rows.push_back({count});
  };
  recompute({{.full = 3}, {.full = 3}, {.full = 3}, {.full = 3}});
  expect_has(plan, "--recompute-granularity full --recompute-method block --recompute-num-layers 3 ");
  // All blocks of every stage: stages with fewer than the number have all of theirs recomputed.
  recompute({{.full = 7}, {.full = 9}, {.full = 9}, {.full = 7}});
  expect_has(plan, "--recompute-granularity full --recompute-method block --recompute-num-layers 9 ");
  recompute({{.full = 3}, {.full = 4}, {.full = 4}, {.full = 4}});
  expect_refused(plan, "modules.llm.recompute[0][0]: has full 3 of 7 blocks where another stage has 4");
  recompute({{.selective = 7}, {.selective = 9}, {.selective = 9}, {.selective = 7}});
  expect_has(plan, "--recompute-granularity selective --recompute-modules core_attn ");
  recompute({{.selective = 7}, {.selective = 9}, {.selective = 8}, {.selective = 7}});
  expect_refused(plan, "modules.llm.recompute[2][0]: has full 0 and attention 8 of 9 blocks");
  recompute({{.full = 1, .selective = 6}, {.selective = 9}, {.selective = 9}, {.selective = 7}});
  expect_refused(plan, "modules.llm.recompute[0][0]: has full 1 and attention 6 of 7 blocks");
  recompute({{.full = 2}, {.full = 2}, {.full = 2}, {.full = 2}});
  Recompute last;
  last.add(BlockRecompute::kKeep, 5);
  last.add(BlockRecompute::kFull, 2);
  llm_of(plan).recompute[3][0] = last;
  expect_refused(plan, "modules.llm.recompute[3][0]: recomputes 2 blocks that are not the chunk's first");
}

TEST(MegatronExport, ShardsByTheDistributedOptimizerOrFully) {
  Plan plan = shipped_plan("llama3-8b_zero3_dp8");
  expect_has(plan,
             "--use-megatron-fsdp --use-distributed-optimizer --data-parallel-sharding-strategy optim_grads_params "
             "--ckpt-format fsdp_dtensor --overlap-grad-reduce --overlap-param-gather "
             "--suggested-communication-unit-size 16000000 ");
  llm_of(plan).zero_keep_gathered = true;
  expect_refused(plan, "modules.llm.zero_keep_gathered: is true");
  llm_of(plan).zero_keep_gathered = false;
  llm_of(plan).zero = 2;
  expect_has(plan, "--data-parallel-sharding-strategy optim_grads --ckpt-format");
  plan.overlap_dp = false;
  expect_refused(plan, "overlap.dp: is false, but with zero 2");
  llm_of(plan).zero = 0;
  expect_lacks(plan, "--use-distributed-optimizer");
  Plan pipeline = llama_plan();
  llm_of(pipeline).zero = 3;
  expect_refused(pipeline, "modules.llm.zero: is 3 with pp 2");
}

TEST(MegatronExport, OverlapsWhatThePlanOverlaps) {
  Plan plan = llama_plan();
  plan.overlap_dp = false;
  expect_lacks(plan, "overlap");
  expect_lacks(plan, "--ddp-bucket-size");
  plan.overlap_tp = true;
  expect_has(plan, "--tp-comm-overlap ");
  // There is no switch for it: what Megatron-LM does by itself is its own business.
  llm_of(plan).sequence_parallel = false;
  expect_lacks(plan, "--tp-comm-overlap");
  expect_lacks(piped({{8}, {8}, {8}, {8}}), "--overlap-grad-reduce");  // one replica
}

TEST(MegatronExport, CountsBucketsInGradients) {
  Plan plan = llama_plan();
  plan.buckets_mb = 100;
  expect_has(plan, "--ddp-bucket-size 25000000 ");
  plan.precision.reduce = Precision::kBf16;
  expect_has(plan, "--ddp-bucket-size 50000000 ");
}

TEST(MegatronExport, NamesThePrecisions) {
  Plan plan = llama_plan();
  plan.precision.reduce = Precision::kBf16;
  expect_has(plan, "--bf16 --grad-reduce-in-bf16\n");
  plan.precision.reduce = Precision::kFp16;
  expect_refused(plan, "precision.reduce: is fp16, but Megatron-LM reduces gradients in fp32 or in the precision of");
  plan.precision.compute = Precision::kFp16;
  expect_has(plan, "--fp16\n");
  plan.precision.reduce = Precision::kFp32;
  expect_has(plan, "--fp16 --accumulate-allreduce-grads-in-fp32\n");
  plan.precision.compute = Precision::kFp32;
  expect_lacks(plan, "fp");
  plan.precision.compute = Precision::kFp64;
  expect_refused(plan, "precision.compute: is fp64");
  plan.precision.compute = Precision::kBf16;
  plan.precision.master = Precision::kBf16;
  expect_refused(plan, "precision.master: is bf16");
}

TEST(MegatronExport, KnowsTwoOrdersOfRanks) {
  Plan plan = llama_plan();
  llm_of(plan).axis_order = {"tp", "cp", "pp", "dp"};
  expect_has(plan, " --use-tp-pp-dp-mapping ");
  llm_of(plan).axis_order = {"cp", "tp", "dp", "pp"};  // cp is 1
  expect_lacks(plan, "mapping");
  llm_of(plan).axis_order = {"dp", "tp", "cp", "pp"};
  expect_refused(plan, "modules.llm.axis_order: is [dp, tp, cp, pp], but Megatron-LM lays ranks out as");
}

TEST(MegatronExport, RefusesSchedulesThatMegatronDoesNotRun) {
  expect_refused(shipped_plan("llama3-8b_gpipe_tp2_pp2_dp2"), "schedule.name: is gpipe, but Megatron-LM runs");
  expect_refused(shipped_plan("qwen3-30b-a3b_zb_h1_ep8"), "schedule.name: is zb_h1");
  expect_refused(shipped_plan("qwen3-8b_zb_v_pp4"), "schedule.name: is zb_v");
  expect_refused(piped({{16, 16}}), "modules.llm.vpp: is 2 with pp 1");
  Plan odd = piped({{8, 8}, {8, 8}});
  odd.schedule.microbatches = odd.workload.global_batch_samples = 15;
  expect_refused(odd, "schedule.microbatches: is 15, but with interleaving Megatron-LM needs a multiple of pp 2");
}

TEST(MegatronExport, RefusesEncoders) {
  expect_refused(shipped_plan("qwen2-vl-7b_inline"), "modules.vision.placement: is inline, but the arguments of");
  expect_refused(shipped_plan("qwen2-vl-7b_colocated_before"), "modules.vision.placement: is colocated");
  expect_refused(shipped_plan("qwen2-vl-7b_partial"), "modules.vision.placement: is partial");
}

TEST(MegatronExport, RefusesWhatNoTargetHas) {
  Plan plan = llama_plan();
  plan.balance = Balance::kLlm;
  expect_refused(plan, "balance: is llm, but Megatron-LM has no setting that reassigns samples");
  plan.balance = Balance::kNone;
  plan.offload.activations = 1;
  expect_refused(plan, "offload: is given");
  plan.offload = {};
  std::swap(llm_of(plan).ranks[0], llm_of(plan).ranks[7]);
  expect_refused(plan, "modules.llm.ranks: is 7,1-6,0, but Megatron-LM counts the ranks of a mesh from 0 upwards");
  plan = llama_plan();
  plan.cluster.nodes = 2;
  plan.world_size = 16;
  plan.idle_ranks = true;
  expect_refused(plan, "world_size: is 16, but the llm uses 8 of them");
}

TEST(MegatronExport, NamesEveryRefusalAtOnce) {
  Plan plan = shipped_plan("llama3-8b_gpipe_tp2_pp2_dp2");
  plan.balance = Balance::kBoth;
  const auto files = export_plan(plan, Target::kMegatron);
  ASSERT_FALSE(files.ok());
  EXPECT_EQ(files.error().message(), "balance: and 1 other field cannot be expressed for Megatron-LM. All of them:");
  EXPECT_EQ(files.error().details,
            "  balance: is both, but Megatron-LM has no setting that reassigns samples the same way; only none can be "
            "exported\n"
            "  schedule.name: is gpipe, but Megatron-LM runs 1f1b and interleaved_1f1b\n");
}

TEST(MegatronExport, RefusesAnIllegalPlanAsTheCheckerDoes) {
  Plan plan = llama_plan();
  llm_of(plan).tp = 4;
  const auto files = export_plan(plan, Target::kMegatron);
  ASSERT_FALSE(files.ok());
  EXPECT_EQ(files.error().message(),
            "modules.llm.ranks: tp 4 × cp 1 × pp 2 × dp 2 = 16, but the module has 8 ranks; dp 1 makes 8");
}

TEST(Targets, AreParsedByName) {
  for (const std::string& name : target_names()) EXPECT_EQ(name_of(*parse_target(name)), name);
  EXPECT_EQ(parse_target("megatron-lm").error().message(),
            "'megatron-lm' is not a system that plans are exported to. Known are megatron, "
            "mindspeed-mm, mindformers, mindspeed-rl or torchtitan. Did you mean 'megatron'?");
}

}  // namespace
}  // namespace weft
