#include "tests/support/exchange/plans_to_export.h"

namespace weft {
namespace {

bool has_line(const std::string& text, const std::string& line) {
  return ("\n" + text).find("\n" + line + "\n") != std::string::npos;
}

TEST(TorchtitanExport, WritesShardedDataParallelism) {
  Plan plan = shipped_plan("llama3-8b_zero3_dp8");
  const std::string toml = outcome(plan, Target::kTorchtitan);
  EXPECT_TRUE(has_line(toml, "[parallelism]")) << toml;
  EXPECT_TRUE(has_line(toml, "data_parallel_shard_degree = 8")) << toml;
  EXPECT_TRUE(has_line(toml, "data_parallel_replicate_degree = 1"));
  EXPECT_TRUE(has_line(toml, "fsdp_reshard_after_forward = \"always\""));
  EXPECT_TRUE(has_line(toml, "local_batch_size = " + std::to_string(plan.schedule.mbs)));
  EXPECT_TRUE(has_line(toml, "global_batch_size = " + std::to_string(plan.workload.global_batch_samples)));
  EXPECT_TRUE(has_line(toml, "mixed_precision_param = \"bfloat16\""));
  llm_of(plan).zero_keep_gathered = true;
  EXPECT_TRUE(has_line(outcome(plan, Target::kTorchtitan), "fsdp_reshard_after_forward = \"never\""));
}

TEST(TorchtitanExport, NamesHowRowsGoToExperts) {
  Plan plan = shipped_plan("qwen3-30b-a3b_zb_h1_ep8");
  plan.schedule.name = "1f1b";
  llm_of(plan).zero = 3;
  llm_of(plan).recompute.clear();
  const std::string toml = outcome(plan, Target::kTorchtitan);
  EXPECT_TRUE(has_line(toml, "expert_parallel_degree = 8")) << toml;
  EXPECT_TRUE(has_line(toml, "expert_parallel_comm_backend = \"standard\"")) << toml;
  EXPECT_EQ(outcome(shipped_plan("llama3-8b_zero3_dp8"), Target::kTorchtitan).find("comm_backend"), std::string::npos);
}

TEST(TorchtitanExport, NamesTheModulesOfEveryStage) {
  Plan plan = llama_plan();
  plan.schedule.microbatches = 8;
  reshape(plan, 2, 1, 2, 2, {{15}, {17}});
  llm_of(plan).zero = 3;
  std::string toml = outcome(plan, Target::kTorchtitan);
  EXPECT_NE(toml.find("[\"tok_embeddings\", \"layers.0\", "), std::string::npos) << toml;
  EXPECT_NE(toml.find("\"layers.14\"],\n    [\"layers.15\", "), std::string::npos) << toml;
  EXPECT_NE(toml.find("\"layers.31\", \"norm\", \"output\"],\n]"), std::string::npos) << toml;
  EXPECT_TRUE(has_line(toml, "pipeline_parallel_schedule = \"1F1B\""));
  EXPECT_TRUE(has_line(toml, "local_batch_size = " + std::to_string(8 * plan.schedule.mbs)));
  // A V: the last rank has the two middle stages.
  plan = shipped_plan("qwen3-8b_zb_v_pp4");
  llm_of(plan).layers = {{1, 8}, {2, 7}, {3, 6}, {4, 5}};
  plan.precision = {Precision::kFp32, Precision::kFp32, Precision::kFp32};
  llm_of(plan).recompute.clear();
  toml = outcome(plan, Target::kTorchtitan);
  EXPECT_NE(toml.find("[\"layers.6\", \"layers.7\", \"layers.8\", \"layers.9\"],\n    [\"layers.10\", "),
            std::string::npos)
      << toml;
  EXPECT_NE(toml.find("\"layers.14\"],\n    [\"layers.15\""), std::string::npos) << toml;
}

TEST(TorchtitanExport, RefusesWhatItCannotSay) {
  Plan plan = llama_plan();
  llm_of(plan).zero = 1;
  EXPECT_NE(outcome(plan, Target::kTorchtitan).find("replicates all (0) or shards all (3)"), std::string::npos);
  plan = shipped_plan("llama3-8b_zero3_dp8");
  llm_of(plan).recompute = {{RecomputeCounts{.full = 3}}};
  expect_refused(plan, Target::kTorchtitan, "modules.llm.recompute: has 3 of 32 blocks");
  plan = shipped_plan("llama3-8b_zero3_dp8");
  plan.precision.reduce = Precision::kBf16;
  expect_refused(plan, Target::kTorchtitan, "precision.reduce: is bf16");
}

}  // namespace
}  // namespace weft
