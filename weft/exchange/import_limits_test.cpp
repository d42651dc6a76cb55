#include <gtest/gtest.h>

#include "tests/support/source_tree.h"
#include "weft/exchange/import.h"
#include "weft/plan/plan_json.h"
#include "weft/spec/scenario.h"

// Values that no system accepts, or that no plan can have: each is refused by name, before anything of its size is
// made.

namespace weft {
namespace {

Scenarios scenarios() {
  return Scenarios(source_tree() / "scenarios");
}

ImportRequest one_file(Target system, const std::string& name, const std::string& text,
                       const std::string& model = "llama3-8b") {
  ImportRequest asked{.system = system, .files = {{name, text}}, .arguments = ""};
  if (!model.empty()) asked.model = *scenarios().model(model);
  asked.cluster = *scenarios().cluster(system == Target::kMegatron ? "dgx_h100" : "ascend_910b_8");
  return asked;
}

std::string refusal_of(const ImportRequest& asked) {
  const auto run = import_settings(asked);
  return run ? "it was read" : run.error().message() + "\n" + run.error().details;
}

std::string megatron(const std::string& arguments, const std::string& model = "llama3-8b") {
  return refusal_of(one_file(Target::kMegatron, "a.sh", "torchrun x.py --micro-batch-size 1 " + arguments, model));
}

std::string mindformers(const std::string& yaml, const std::string& model = "llama3-8b") {
  return refusal_of(one_file(Target::kMindformers, "a.yaml", yaml, model));
}

std::string search_result(const std::string& degrees) {
  ImportRequest asked =
      one_file(Target::kMindspeedMm, "a.json",
               "{\"parallel_config\": {" + degrees + "}, \"layer_placement\": {\"llm_layer_placement\": [32]}}");
  asked.arguments = "--global-batch-size 8 --micro-batch-size 1";
  return refusal_of(asked);
}

void expect_part(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "no '" << part << "' in\n" << text;
}

/// A script that describes its model, of so many layers.
std::string whole_script(const std::string& launcher, int layers, const std::string& more) {
  return "torchrun " + launcher + " x.py --num-layers " + std::to_string(layers) +
         " --hidden-size 512 --num-attention-heads 8 --vocab-size 1000 --swiglu --normalization RMSNorm"
         " --position-embedding-type rope --disable-bias-linear --micro-batch-size 1 --bf16 " +
         more;
}

TEST(ImportLimits, AWordThatIsNestedWithoutEndIsAText) {
  const std::string deep(100'000, '[');
  const std::string script = "mm-convert --cfg.parallel_config.llm_pp_layers=" + deep +
                             "\ntorchrun x.py --micro-batch-size 1 --tensor-model-parallel-size 1\n";
  EXPECT_EQ(refusal_of(one_file(Target::kMegatron, "a.sh", script)), "it was read");
}

TEST(ImportLimits, DegreesAreNoMoreThanDevicesCanBe) {
  expect_part(megatron("--tensor-model-parallel-size 1000001"),
              "tensor-model-parallel-size: is the text '1000001', a whole number from 1 to 1000000 is needed");
  expect_part(search_result(R"("PP": 1000000000000000, "TP": 1000000000000000, "DP": 1000000000000000, "MBS": 1)"),
              "parallel_config.PP: is the number 1000000000000000, a whole number from 1 to 1000000 is needed");
  expect_part(search_result(R"("PP": 1, "TP": 1, "DP": 8000000000, "MBS": 1)"), "parallel_config.DP: is the number");
  expect_part(search_result(R"("PP": 1000, "TP": 1000, "DP": 1000, "MBS": 1)"),
              "parallel_config.DP: PP x TP x DP is 1000000000, at most 1000000 devices can be planned");
}

TEST(ImportLimits, ExpertsOverTensorRanksAreNoProductThatOverflows) {
  const std::string yaml =
      "actor_config: {micro_batch_size: 1, tensor_model_parallel_size: 1000000000000000,\n"
      "  expert_model_parallel_size: 1000000000000000, moe_tp_extend_ep: true}\n"
      "rl_config: {mini_batch_size: 8, n_samples_per_prompt: 1}\n";
  expect_part(refusal_of(one_file(Target::kMindspeedRl, "a.yaml", yaml, "qwen3-30b-a3b")),
              "expert-model-parallel-size: is the number 1000000000000000, a whole number from 1 to 1000000 is needed");
}

TEST(ImportLimits, NumbersAreFinite) {
  const auto with = [](const std::string& line) {
    return mindformers("parallel_config: {data_parallel: 8}\nlr_schedule: {total_steps: 100, learning_rate: 1.0e-5}\n" +
                       line);
  };
  EXPECT_EQ(with("optimizer: {betas: [0.9, 0.95]}"), "it was read");
  expect_part(mindformers("lr_schedule: {total_steps: 100, learning_rate: .nan}"),
              "lr_schedule.learning_rate: is the number nan, a number from 0 to 1000000 is needed");
  expect_part(mindformers("lr_schedule: {total_steps: 100, learning_rate: 1, warmup_ratio: .nan}"),
              "lr_schedule.warmup_ratio: is the number nan, a number is needed");
  expect_part(with("optimizer: {betas: [.nan, .inf]}"), "optimizer.betas: has the number nan, a number from 0 to");
  expect_part(with("optimizer: {betas: [0.9]}"), "optimizer.betas: is a list, a list of 2 numbers is needed");
  expect_part(with("optimizer: {eps: .inf}"), "optimizer.eps: is the number inf");
  expect_part(with("callbacks: [{type: CheckpointMonitor, save_checkpoint_steps: 18446744073709551615}]"),
              "callbacks: have the number 18446744073709551615 of save_checkpoint_steps");
}

TEST(ImportLimits, TheWidthOfAnMlpIsComputedWithinBounds) {
  const auto with = [](const std::string& factor) {
    return mindformers(
        "model: {model_config: {type: LlamaConfig, num_layers: 8, hidden_size: 512, num_heads: 8, vocab_size: 1000,\n"
        "  ffn_dim_multiplier: " +
            factor + "}}\nparallel_config: {data_parallel: 8}\n",
        "");
  };
  EXPECT_EQ(with("1.3"), "it was read");
  expect_part(with("1.0e+300"),
              "model.model_config.ffn_dim_multiplier: is the number 1e+300, a number from 0.001 to 1000 is needed");
  expect_part(with(".nan"), "ffn_dim_multiplier: is the number nan");
  std::string wide =
      "model: {model_config: {type: LlamaConfig, num_layers: 8, hidden_size: 8192, num_heads: 8, vocab_size: 1000,\n"
      "  ffn_dim_multiplier: 900}}\nparallel_config: {data_parallel: 8}\n";
  expect_part(mindformers(wide, ""), "ffn_dim_multiplier: is 900, which makes an intermediate_size of 19661");
}

TEST(ImportLimits, AClusterHasNoMoreDevicesThanPlansMayHave) {
  expect_part(mindformers("use_parallel: true\nparallel_config: {data_parallel: 32768, model_parallel: 32768, "
                          "pipeline_stage: 32768, micro_batch_num: 32768}\n"),
              "parallel_config.data_parallel: x model_parallel x context_parallel x pipeline_stage is 35184372088832, "
              "at most 1000000 devices can be planned");
  expect_part(mindformers("use_parallel: true\nparallel_config: {data_parallel: 32768, model_parallel: 4096}\n"),
              "is 134217728, at most 1000000 devices");
  const auto launched = [](const std::string& launcher) {
    return refusal_of(one_file(Target::kMegatron, "a.sh", whole_script(launcher, 8, ""), ""));
  };
  expect_part(launched("--nproc_per_node 1024 --nnodes 1000000"),
              "nnodes: is 1000000; the cluster has 1000000 nodes × 1024 = 1024000000 devices, at most 1000000 can be "
              "planned");
  expect_part(launched("--nproc_per_node 8 --nnodes 200000"), "1600000 devices, at most 1000000 can be planned");
  expect_part(launched("--nproc_per_node 8 --nnodes 2000000"), "nnodes: is 2000000, at most 1000000 can be planned");
  ImportRequest by_option = one_file(Target::kMegatron, "a.sh", whole_script("--nproc_per_node 8", 8, ""), "");
  by_option.nodes = 200'000;
  expect_part(refusal_of(by_option), "--nodes: is 200000; the cluster has");
}

TEST(ImportLimits, WhatIsReadCanBeReadAgain) {
  expect_part(megatron("--bf16 --ddp-bucket-size 900000000000000 --overlap-grad-reduce --use-distributed-optimizer"),
              "the plan that the files describe: buckets_mb: ");
  const auto run = import_settings(one_file(Target::kMegatron, "a.sh", whole_script("--nproc_per_node 8", 8, ""), ""));
  ASSERT_TRUE(run.ok()) << run.error().message();
  EXPECT_TRUE(read_plan({.source = "p", .root = plan_to_json(run->plan)}).ok());
}

TEST(ImportLimits, NoTableIsMadeOfMoreChunksThanLayers) {
  const auto with = [](const std::string& more) {
    return refusal_of(one_file(
        Target::kMegatron, "a.sh",
        whole_script("--nproc_per_node 8 --nnodes 125000", 4096, "--pipeline-model-parallel-size 1000000 " + more),
        ""));
  };
  const std::string chunks = "--num-virtual-stages-per-pipeline-rank 4096 ";
  const std::string problem =
      "pipeline-model-parallel-size: is 1000000 with 4096 chunks a rank, which is more than the ";
  expect_part(with(chunks), problem);
  expect_part(with(chunks + "--account-for-embedding-in-pipeline-split"), problem);
  expect_part(with(chunks + "--decoder-first-pipeline-num-layers 1"), problem);
  const std::string yaml =
      "use_parallel: true\nparallel: {pipeline_config: {pipeline_interleave: true}}\n"
      "parallel_config: {pipeline_stage: 1000000, micro_batch_num: 1000000}\n";
  expect_part(mindformers(yaml),
              "parallel_config.pipeline_stage: is 1000000 with one chunk a rank, which is more than");
}

TEST(ImportLimits, CountsOfBlocksAndPartsAreNotMadeToFit) {
  expect_part(mindformers("parallel_config: {data_parallel: 8}\nrecompute_config: {recompute: -3}\n"),
              "recompute_config.recompute: has a number of blocks below 0");
  expect_part(mindformers("parallel_config: {data_parallel: 8}\nmicro_batch_interleave_num: 2000\n"),
              "micro_batch_interleave_num: is the number 2000, a whole number from 1 to 1024 is needed");
  const auto list = [](const std::string& text) {
    ImportRequest asked = one_file(Target::kMindspeedRl, "a.yaml",
                                   "actor_config: {micro_batch_size: 1, pipeline_model_parallel_size: 2,\n"
                                   "  num_layer_list: \"" +
                                       text + "\"}\nrl_config: {mini_batch_size: 8, n_samples_per_prompt: 1}\n");
    return refusal_of(asked);
  };
  EXPECT_EQ(list("15,17"), "it was read");
  expect_part(list("16,,16"), "num-layer-list: is '16,,16', numbers with a comma between two of them are needed");
  expect_part(list("32,"), "num-layer-list: is '32,'");
}

TEST(ImportLimits, ADispatcherOfExpertsIsOneThatIsKnown) {
  const std::string experts =
      "--tensor-model-parallel-size 1 --expert-model-parallel-size 2 --moe-token-dispatcher-type ";
  EXPECT_EQ(megatron(experts + "alltoall", "qwen3-30b-a3b"), "it was read");
  expect_part(megatron(experts + "banana", "qwen3-30b-a3b"),
              "moe-token-dispatcher-type: is 'banana', allgather, alltoall, alltoall_seq or flex is needed");
}

TEST(ImportLimits, TrainingNumbersAreThoseThatTrainingTakes) {
  const std::string problem =
      megatron("--lr -1 --adam-beta1 7 --adam-eps -3 --clip-grad -2 --weight-decay -9 --train-iters 5");
  for (const char* part : {"lr: is the text '-1', a number from 0 to 1000000 is needed",
                           "adam-beta1: is the text '7', a number from 0 to "
                           "0.999999 is needed",
                           "adam-eps: is", "clip-grad: is", "weight-decay: is"})
    expect_part(problem, part);
  expect_part(megatron("--lr 1 --train-iters 1000000001"), "a whole number from 1 to 1000000000 is needed");
  expect_part(megatron("--lr 1 --train-samples 900000000000000"),
              "steps: come to 112500000000000 by the files, at most 1000000000 can be trained");
}

TEST(ImportLimits, WhatIsListedStaysInItsLineAndSpeaksToNoTerminal) {
  const std::string script =
      "torchrun x.py --micro-batch-size 1 '--a\033[31mred\nfake: line' 1 '--b\033]0;title\a' 2\n";
  const auto run = import_settings(one_file(Target::kMegatron, "n\033[31m.sh", script));
  ASSERT_FALSE(run.ok());
  EXPECT_EQ(run.error().details.find_first_of("\033\a"), std::string::npos);
  EXPECT_EQ(std::count(run.error().details.begin(), run.error().details.end(), '\n'), 2);
  expect_part(run.error().details, "a\\x1b[31mred\\x0afake: line");
}

}  // namespace
}  // namespace weft
