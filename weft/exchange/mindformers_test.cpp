#include <gtest/gtest.h>

#include "tests/support/exchange/plans_to_export.h"
#include "weft/base/document.h"

namespace weft::mindformers_test {
namespace {

void expect_refused(const Plan& plan, const std::string& message) {
  expect_refused(plan, Target::kMindformers, message);
}

/// The exported file, read by a YAML parser.
Json yaml_of(const Plan& plan) {
  const auto files = export_plan(plan, Target::kMindformers);
  EXPECT_TRUE(files.ok()) << files.error().message() << files.error().details;
  if (!files) return {};
  EXPECT_EQ(files->front().name, "mindformers.yaml");
  return parse_document(files->front().text, "mindformers.yaml", Syntax::kYaml)->root;
}

TEST(MindformersExport, WritesTheParallelPartOfAConfiguration) {
  EXPECT_EQ(outcome(llama_plan(), Target::kMindformers), R"(parallel_config:
  data_parallel: 2
  model_parallel: 2
  pipeline_stage: 2
  micro_batch_num: 16
  use_seq_parallel: True
recompute_config:
  recompute: [0, 0]
  select_recompute: False
parallel:
  enable_parallel_optimizer: True
  parallel_optimizer_config:
    optimizer_level: level1
  gradient_fp32_sync: True
  comm_fusion:
    allgather: {mode: size, config: 64}
    reducescatter: {mode: size, config: 64}
  pipeline_config:
    pipeline_interleave: False
    pipeline_scheduler: 1f1b
runner_config:
  batch_size: 1
  gradient_accumulation_steps: 1
model:
  model_config:
    offset: [0, 0]
    compute_dtype: bfloat16
    param_init_type: float32
)");
}

TEST(MindformersExport, OffsetsAreWhatAStageHasBeyondItsEvenShare) {
  Plan plan = llama_plan();
  reshape(plan, 1, 1, 5, 1, {{5}, {7}, {7}, {7}, {6}});
  llm_of(plan).recompute = {
      {RecomputeCounts{.full = 1}}, {{}}, {RecomputeCounts{.full = 7}}, {{}}, {RecomputeCounts{.full = 2}}};
  const Json yaml = yaml_of(plan);
  // 32 layers on 5 stages: an even share is 6, and the offsets add up to the remainder, 2.
  EXPECT_EQ(yaml["model"]["model_config"]["offset"], Json::parse("[-1, 1, 1, 1, 0]"));
  EXPECT_EQ(yaml["recompute_config"]["recompute"], Json::parse("[1, 0, 7, 0, 2]"));
}

TEST(MindformersExport, InterleavesInListsPerChunk) {
  Plan plan = llama_plan();
  reshape(plan, 1, 1, 2, 1, {{9, 7}, {10, 6}});
  llm_of(plan).recompute = {{RecomputeCounts{.full = 1}, RecomputeCounts{.full = 2}},
                            {RecomputeCounts{.full = 3}, RecomputeCounts{.full = 4}}};
  const Json yaml = yaml_of(plan);
  EXPECT_EQ(yaml["model"]["model_config"]["offset"], Json::parse("[[1, 2], [-1, -2]]"));
  EXPECT_EQ(yaml["model"]["model_config"]["pp_interleave_num"], 2);
  EXPECT_EQ(yaml["recompute_config"]["recompute"], Json::parse("[[1, 3], [2, 4]]"));
  EXPECT_EQ(yaml["parallel"]["pipeline_config"]["pipeline_interleave"], true);
}

TEST(MindformersExport, AccumulatesGradientsWithoutAPipeline) {
  const Json yaml = yaml_of(shipped_plan("llama3-8b_zero3_dp8"));
  EXPECT_EQ(yaml["parallel_config"]["micro_batch_num"], 1);
  EXPECT_EQ(yaml["runner_config"]["gradient_accumulation_steps"], 8);
  EXPECT_FALSE(yaml["parallel"].contains("pipeline_config"));
}

TEST(MindformersExport, NamesTheLevelOfTheOptimizer) {
  Plan plan = shipped_plan("llama3-8b_zero3_dp8");
  const auto level = [&] { return yaml_of(plan)["parallel"]["parallel_optimizer_config"]["optimizer_level"]; };
  EXPECT_EQ(level(), "level3");
  llm_of(plan).zero_keep_gathered = true;
  EXPECT_EQ(level(), "level2");
  llm_of(plan).zero = 1;
  EXPECT_EQ(level(), "level1");
  llm_of(plan).zero = 0;
  EXPECT_FALSE(yaml_of(plan)["parallel"].contains("parallel_optimizer_config"));
  EXPECT_EQ(yaml_of(plan)["parallel"]["comm_fusion"], Json::parse(R"({"allreduce": {"mode": "size", "config": 64}})"));
}

TEST(MindformersExport, NamesTheKindOfContextParallelism) {
  Plan plan = shipped_plan("llama3-8b_cp4_ulysses2");
  expect_refused(plan, "modules.llm.sequence_parallel: is on with cp 4");
  llm_of(plan).sequence_parallel = false;
  EXPECT_EQ(yaml_of(plan)["parallel_config"]["context_parallel_algo"], "hybrid_cp");
  EXPECT_EQ(yaml_of(plan)["parallel_config"]["ulysses_degree_in_cp"], 2);
  llm_of(plan).cp_ulysses = 1;
  EXPECT_EQ(yaml_of(plan)["parallel_config"]["context_parallel_algo"], "colossalai_cp");
  llm_of(plan).cp_ulysses = 4;
  EXPECT_EQ(yaml_of(plan)["parallel_config"]["context_parallel_algo"], "ulysses_cp");
}

TEST(MindformersExport, RunsGpipeToo) {
  EXPECT_EQ(yaml_of(shipped_plan("llama3-8b_gpipe_tp2_pp2_dp2"))["parallel"]["pipeline_config"]["pipeline_scheduler"],
            "gpipe");
}

TEST(MindformersExport, NamesTheDegreeOfExperts) {
  Plan plan = shipped_plan("qwen3-30b-a3b_zb_h1_ep8");
  expect_refused(plan, "schedule.name: is zb_h1, but MindFormers places stages for gpipe, 1f1b and interleaved_1f1b");
  plan.schedule.name = "1f1b";
  EXPECT_EQ(yaml_of(plan)["parallel_config"]["expert_parallel"], 8);
  EXPECT_EQ(yaml_of(plan)["model"]["model_config"]["moe_token_dispatcher_type"], "alltoall");
}

TEST(MindformersExport, NamesThePrecisions) {
  Plan plan = llama_plan();
  plan.precision = {.compute = Precision::kFp16, .master = Precision::kFp16, .reduce = Precision::kFp16};
  const Json config = yaml_of(plan)["model"]["model_config"];
  EXPECT_EQ(config["compute_dtype"], "float16");
  EXPECT_EQ(config["param_init_type"], "float16");
  EXPECT_EQ(yaml_of(plan)["parallel"]["gradient_fp32_sync"], false);
  plan.precision.reduce = Precision::kBf16;
  expect_refused(plan, "precision.reduce: is bf16, but MindFormers reduces gradients in fp32 or in the precision of");
  plan.precision = {.compute = Precision::kFp64};
  expect_refused(plan, "precision.compute: is fp64");
  plan.precision = {.master = Precision::kFp64};
  expect_refused(plan, "precision.master: is fp64");
}

TEST(MindformersExport, RefusesWhatItCannotExpress) {
  expect_refused(shipped_plan("qwen2-vl-7b_inline"), "modules.vision.placement: is inline, but MindFormers'");
  expect_refused(shipped_plan("qwen3-8b_zb_v_pp4"), "schedule.name: is zb_v");
  Plan plan = llama_plan();
  plan.overlap_dp = false;
  expect_refused(plan, "overlap.dp: is false");
  plan = llama_plan();
  plan.buckets_mb = 0.5;
  expect_refused(plan, "buckets_mb: is 0.5, but MindFormers' comm_fusion takes whole megabytes");
  plan = llama_plan();
  llm_of(plan).axis_order = {"tp", "cp", "pp", "dp"};
  expect_refused(plan, "modules.llm.axis_order: is [tp, cp, pp, dp], but MindFormers");
  plan = llama_plan();
  llm_of(plan).recompute = {{{}}, {RecomputeCounts{.selective = 3}}};
  expect_refused(
      plan, "modules.llm.recompute[1][0]: recomputes the attention of 3 blocks, but MindFormers selects by the names");
  plan = llama_plan();
  plan.schedule.microbatches = 1;
  plan.workload.global_batch_samples = 2;
  expect_refused(plan, "schedule.microbatches: is 1, but MindFormers needs at least pp 2 in a pipeline");
  plan = shipped_plan("llama3-8b_zero3_dp8");
  plan.schedule.name = "gpipe";
  expect_refused(plan, "schedule.name: is gpipe with pp 1");
  plan = llama_plan();
  plan.balance = Balance::kBoth;
  expect_refused(plan, "balance: is both, but MindFormers");
}

TEST(MindformersExport, RefusesMoreStagesThanLayers) {
  Plan plan = llama_plan();
  plan.schedule.microbatches = 64;
  std::vector<std::vector<int64_t>> layers(33, {1});
  layers[5] = {0};
  reshape(plan, 1, 1, 33, 1, layers);
  expect_refused(plan, "modules.llm.layers: are 32 on 33 stages, but MindFormers needs a layer a stage");
}

}  // namespace
}  // namespace weft::mindformers_test
