#include "weft/exchange/settings_edit.h"

#include <functional>

#include <gtest/gtest.h>

#include "tests/support/exchange/plans_to_export.h"
#include "tests/support/source_tree.h"
#include "weft/exchange/file_difference.h"
#include "weft/spec/scenario.h"

namespace weft::settings_edit_test {
namespace {

Scenarios shipped() {
  return Scenarios(source_tree() / "scenarios");
}

ImportRequest request_of(Target system, std::vector<SettingsFile> files, const std::string& cluster) {
  ImportRequest request{
      .system = system, .files = std::move(files), .arguments = "", .cluster = *shipped().cluster(cluster)};
  for (const char* name : {"vl_sft", "omni_short"}) request.known_workloads.push_back(*shipped().workload(name));
  for (const char* name : {"qwen2-vl-7b", "llama3-8b"}) request.known_models.push_back(*shipped().model(name));
  return request;
}

constexpr const char* kLlama =
    "  --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 \\\n"
    "  --position-embedding-type rope --swiglu --normalization RMSNorm --disable-bias-linear \\\n"
    "  --untie-embeddings-and-output-weights --vocab-size 128256 --make-vocab-size-divisible-by 1 --seq-length 4096 "
    "\\\n"
    "  --max-position-embeddings 8192 --bf16 --lr 3e-4 --train-iters 10 \\\n";

/// The difference of the files that makes them describe another plan; files that cannot are a failure.
std::string difference(const ImportRequest& request, const std::function<void(Plan&)>& change) {
  const auto run = import_settings(request);
  EXPECT_TRUE(run) << run.error().message() << run.error().details;
  Plan wanted = run->plan;
  change(wanted);
  wanted.predicted = {.step_time_ms = 1, .peak_memory_gib = {1}, .throughput_samples_per_s = 1};
  const Result<SettingsEdit> edit = edit_settings(request, *run, wanted);
  EXPECT_TRUE(edit) << edit.error().message() << edit.error().details;
  std::string text;
  if (!edit) return text;
  EXPECT_FALSE(edit->files.empty()) << "no change of the files was found";
  for (const SettingsFile& file : edit->files) {
    for (const SettingsFile& own : request.files) {
      if (own.name == file.name) text += file_difference(own.name, own.text, file.text);
    }
  }
  return text;
}

/// Other degrees on the same devices, with the batch that was there.
void set_degrees(Plan& plan, int64_t tp, int64_t pp) {
  ModulePlan& llm = plan.modules.back();
  const int64_t layers = static_cast<int64_t>(plan.model.find(ModuleKind::kLlm)->layers.size());
  llm.tp = tp, llm.pp = pp;
  llm.dp = plan.world_size / tp / pp;
  llm.layers.assign(static_cast<size_t>(pp), {layers / pp});
  llm.recompute = {};
  llm.sequence_parallel = llm.sequence_parallel && tp > 1;
  plan.schedule.microbatches = plan.workload.global_batch_samples / plan.schedule.mbs / llm.dp;
}

std::string added_and_removed(const std::string& difference) {
  std::string lines;
  for (size_t begin = 0; begin < difference.size();) {
    const size_t end = difference.find('\n', begin) + 1;
    const std::string line = difference.substr(begin, end - begin);
    if ((line[0] == '-' || line[0] == '+') && !line.starts_with("---") && !line.starts_with("+++")) lines += line;
    begin = end;
  }
  return lines;
}

/// Plans that were searched for list what each chunk recomputes even where that is nothing; imported ones do not.
TEST(SettingsEdit, ChangesTheLinesOfASettingWhereThePlanHasAnEmptyListOfRecomputation) {
  const std::string script = "torchrun --nnodes 1 --nproc_per_node 8 pretrain_gpt.py \\\n" + std::string(kLlama) +
                             "  --micro-batch-size 1 --global-batch-size 64 \\\n  --tensor-model-parallel-size 4\n";
  const ImportRequest request = request_of(Target::kMegatron, {{"train.sh", script}}, "dgx_h100");
  EXPECT_EQ(added_and_removed(difference(request,
                                         [](Plan& plan) {
                                           set_degrees(plan, 2, 1);
                                           plan.modules.back().recompute = {{Recompute{}}};
                                         })),
            "-  --tensor-model-parallel-size 4\n+  --tensor-model-parallel-size 2\n");
}

TEST(SettingsEdit, ABatchThatFollowsFromWhatChangesIsWrittenOut) {
  const std::string script = "TP=${TP:-4}\nGPUS=8\nARGS=(\n" + std::string(kLlama) +
                             "  --micro-batch-size 1 --global-batch-size $((GPUS / TP * 32))\n"
                             "  --tensor-model-parallel-size $TP --sequence-parallel --use-distributed-optimizer\n)\n"
                             "torchrun --nnodes 1 --nproc_per_node $GPUS pretrain_gpt.py \"${ARGS[@]}\"\n";
  const ImportRequest request = request_of(Target::kMegatron, {{"train.sh", script}}, "dgx_h100");
  const std::string lines = added_and_removed(difference(request, [](Plan& plan) {
    plan.modules.back().zero = 3;
    plan.overlap_dp = true;
    set_degrees(plan, 1, 1);
  }));
  for (const char* part :
       {"-TP=${TP:-4}\n+TP=${TP:-1}\n", "-  --micro-batch-size 1 --global-batch-size $((GPUS / TP * 32))\n",
        "--use-megatron-fsdp ", "--data-parallel-sharding-strategy optim_grads_params ", "--ckpt-format fsdp_dtensor ",
        "--micro-batch-size 1 --global-batch-size 64\n",
        "-  --tensor-model-parallel-size $TP --sequence-parallel --use-distributed-optimizer\n",
        "+  --tensor-model-parallel-size $TP --use-distributed-optimizer\n"})
    EXPECT_NE(lines.find(part), std::string::npos) << part << " in\n" << lines;
}

constexpr const char* kMindformers = R"(use_parallel: True
runner_config:
  batch_size: 1  # samples at once
parallel:
  parallel_mode: 1
  enable_parallel_optimizer: False
  parallel_optimizer_config:
    gradient_accumulation_shard: False
parallel_config:
  data_parallel: 2
  model_parallel: 2
  pipeline_stage: 2
  micro_batch_num: 8
recompute_config:
  recompute: True
callbacks:
  - type: MFLossMonitor
model:
  model_config: &model_config
    type: LlamaConfig
    num_layers: 32
    hidden_size: 4096
    num_heads: 32
    intermediate_size: 14336
    vocab_size: 32000
    seq_length: 4096
    compute_dtype: bfloat16
)";

TEST(SettingsEdit, KeysOfAYamlFileAreChangedAndMissingOnesAddedToTheirSections) {
  const ImportRequest request = request_of(Target::kMindformers, {{"finetune.yaml", kMindformers}}, "ascend_910b_8");
  EXPECT_EQ(added_and_removed(difference(request,
                                         [](Plan& plan) {
                                           plan.modules.back().zero = 2;
                                           plan.overlap_dp = true;
                                           set_degrees(plan, 4, 1);
                                         })),
            "+  gradient_accumulation_steps: 8\n"
            "-  enable_parallel_optimizer: False\n+  enable_parallel_optimizer: True\n"
            "+    optimizer_level: level2\n"
            "-  model_parallel: 2\n-  pipeline_stage: 2\n+  model_parallel: 4\n+  pipeline_stage: 1\n"
            "-  recompute: True\n+  recompute: [0]\n");
}

TEST(SettingsEdit, TheActorsKeysAreChangedAndTakenOut) {
  const std::string yaml =
      "megatron_training:\n  bf16: true\n  use_distributed_optimizer: true\nactor_config:\n  model: llama\n"
      "  micro_batch_size: 1\n  tensor_model_parallel_size: 4\n  sequence_parallel: true\n"
      "  pipeline_model_parallel_size: 2\n  num_layers_per_virtual_pipeline_stage: 8\n  lr: 1e-6\n"
      "rl_config:\n  mini_batch_size: 16\n  n_samples_per_prompt: 2\n  actor_resource:\n    num_npus: 8\n";
  ImportRequest request = request_of(Target::kMindspeedRl, {{"grpo.yaml", yaml}}, "ascend_910b_8");
  request.model = *shipped().model("llama3-8b");
  EXPECT_EQ(added_and_removed(difference(request,
                                         [](Plan& plan) {
                                           plan.modules.back().vpp = 1;
                                           plan.modules.back().zero = 1;
                                           plan.overlap_dp = false;
                                           plan.schedule.name = "1f1b";
                                           set_degrees(plan, 2, 1);
                                         })),
            "-  tensor_model_parallel_size: 4\n+  tensor_model_parallel_size: 2\n"
            "-  pipeline_model_parallel_size: 2\n-  num_layers_per_virtual_pipeline_stage: 8\n"
            "+  pipeline_model_parallel_size: 1\n");
}

TEST(SettingsEdit, AModelFileAndItsScriptChangeTogether) {
  const std::string script =
      "TP=2\ntorchrun --nnodes 1 --nproc_per_node 8 pretrain_vlm.py --tensor-model-parallel-size $TP \\\n"
      "  --pipeline-model-parallel-size 2 --micro-batch-size 1 --global-batch-size 32 --bf16 --lr 1e-5\n";
  const std::string model = R"({
    "image_encoder": {
        "vision_encoder": {"num_layers": 32, "hidden_size": 1280, "pipeline_num_layers": [32, 0], "freeze": true},
        "vision_projector": {"freeze": true}
    },
    "text_decoder": {
        "num_layers": 28,
        "hidden_size": 3584,
        "pipeline_num_layers": [12, 16],
        "recompute_granularity": "full",
        "recompute_method": "uniform",
        "recompute_num_layers": 1
    }
}
)";
  const ImportRequest request =
      request_of(Target::kMindspeedMm, {{"finetune.sh", script}, {"model.json", model}}, "ascend_910b_8");
  EXPECT_EQ(added_and_removed(difference(request,
                                         [](Plan& plan) {
                                           plan.modules.back().layers = {{10}, {18}};
                                           plan.modules.back().recompute = {};
                                         })),
            "-        \"pipeline_num_layers\": [12, 16],\n-        \"recompute_granularity\": \"full\",\n"
            "-        \"recompute_method\": \"uniform\",\n-        \"recompute_num_layers\": 1\n"
            "+        \"pipeline_num_layers\": [10,18]\n");
}

}  // namespace
}  // namespace weft::settings_edit_test
