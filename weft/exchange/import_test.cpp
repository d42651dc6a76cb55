#include "weft/exchange/import.h"

#include "tests/support/exchange/plans_to_export.h"
#include "tests/support/source_tree.h"
#include "weft/plan/mbs_scale.h"
#include "weft/spec/scenario.h"

namespace weft {
namespace {

Scenarios shipped() {
  return Scenarios(source_tree() / "scenarios");
}

ImportRequest request(Target system, std::vector<SettingsFile> files, const std::string& cluster) {
  ImportRequest request{
      .system = system, .files = std::move(files), .arguments = "", .cluster = *shipped().cluster(cluster)};
  for (const char* name : {"vl_sft", "omni_short"}) request.known_workloads.push_back(*shipped().workload(name));
  if (system == Target::kMindspeedMm) {
    for (const char* name : {"qwen2-vl-7b", "qwen2-vl-72b", "qwen2.5-omni-7b"})
      request.known_models.push_back(*shipped().model(name));
  }
  return request;
}

std::string problem_of(const ImportRequest& request) {
  const auto run = import_settings(request);
  return run ? "it was read" : run.error().message() + "\n" + run.error().details;
}

const ImportedKey* find_key(const ImportedRun& run, const std::string& name) {
  for (const ImportedKey& key : run.keys) {
    if (key.key == name) return &key;
  }
  return nullptr;
}

bool has_note(const ImportedRun& run, const std::string& part) {
  return std::any_of(run.notes.begin(), run.notes.end(),
                     [&](const auto& note) { return note.find(part) != note.npos; });
}

constexpr const char* kMegatronScript = R"(#!/bin/bash
GPUS_PER_NODE=8
NNODES=${NNODES:-4}
TP=4
PP=2
DP=$(($GPUS_PER_NODE*$NNODES/$TP/$PP))
LOG=$(date +%F)
DISTRIBUTED="--nproc_per_node $GPUS_PER_NODE --nnodes $NNODES --node_rank ${RANK:-0}"
MODEL=(
  --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336   # Llama 3 8B
  --num-attention-heads 32 --group-query-attention --num-query-groups 8
  --position-embedding-type rope --rotary-base 500000 --swiglu --normalization RMSNorm
  --disable-bias-linear --untie-embeddings-and-output-weights
  --vocab-size 128256 --make-vocab-size-divisible-by 64 --seq-length 8192 --max-position-embeddings 8192
)
TRAIN="
  --micro-batch-size 1 \
  --global-batch-size $((DP*16)) \
  --lr 3e-4 --min-lr 3e-5 --lr-decay-style cosine --lr-warmup-fraction 0.1 \
  --train-iters 1000 --weight-decay 0.1 --adam-beta2 0.95 --clip-grad 1.0 --seed 7 \
  --bf16 --save ckpt --save-interval 100
"
torchrun $DISTRIBUTED pretrain_gpt.py "${MODEL[@]}" $TRAIN \
  --tensor-model-parallel-size $TP --pipeline-model-parallel-size $PP --sequence-parallel \
  --num-layers-per-virtual-pipeline-stage 8 --use-distributed-optimizer --overlap-grad-reduce \
  --recompute-granularity full --recompute-method block --recompute-num-layers 2 \
  --tensorboard-dir $LOG --log-interval 1 2>&1 | tee $LOG.log
)";

TEST(ImportMegatron, ReadsAScript) {
  const auto run = import_settings(request(Target::kMegatron, {{"train.sh", kMegatronScript}}, "dgx_h100"));
  ASSERT_TRUE(run.ok()) << run.error().message() << run.error().details;
  const Plan& plan = run->plan;
  const ModulePlan& llm = plan.llm();
  EXPECT_EQ(plan.world_size, 32);
  EXPECT_EQ(plan.cluster.nodes, 4);
  EXPECT_EQ(plan.model.family, "llama");
  EXPECT_EQ(num_parameters(plan.model), num_parameters(*shipped().model("llama3-8b")));
  EXPECT_EQ(llm.tp, 4);
  EXPECT_EQ(llm.dp, 4);
  EXPECT_EQ(llm.layers, (std::vector<std::vector<int64_t>>{{8, 8}, {8, 8}}));
  EXPECT_EQ(llm.recompute[1][1].count(BlockRecompute::kFull), 2);
  EXPECT_EQ(llm.zero, 1);
  EXPECT_TRUE(llm.sequence_parallel);
  EXPECT_EQ(plan.schedule.name, "interleaved_1f1b");
  EXPECT_EQ(plan.schedule.microbatches, 16);
  EXPECT_EQ(plan.precision.reduce, Precision::kFp32);
  EXPECT_DOUBLE_EQ(plan.buckets_mb, 160);  // 40 million gradients in fp32
  EXPECT_DOUBLE_EQ(plan.workload.tokens.mean(), 8192);
  EXPECT_EQ(run->config["steps"], 1000);
  EXPECT_EQ(run->config["optimizer"]["learning_rate"], 3e-4);
  EXPECT_DOUBLE_EQ(run->config["learning_rate_schedule"]["end_fraction"].get<double>(), 0.1);
  EXPECT_EQ(run->config["learning_rate_schedule"]["warmup_steps"], 100);
  EXPECT_EQ(run->config["checkpoints"]["interval_steps"], 100);
  EXPECT_EQ(find_key(*run, "tensor-model-parallel-size")->place, (Place{0, 4}));
  EXPECT_EQ(find_key(*run, "tensorboard-dir")->fate, KeyFate::kIgnored);
  EXPECT_EQ(find_key(*run, "adam-eps")->fate, KeyFate::kDefault);
}

TEST(ImportMegatron, ReadsYamlOfArgumentsAndALine) {
  const std::string yaml =
      "ENV_VARS:\n  A: 1\nMODEL_ARGS:\n  --num-layers: 12\n  --hidden-size: 512\n  --num-attention-heads: 8\n"
      "  --micro-batch-size: 4\n  --global-batch-size: 64\n  --seq-length: 1024\n  --max-position-embeddings: 1024\n"
      "  --bf16: true\n  --vocab-file: ${DATA}/v.json\n  --merge-file: ${DATA}/m.txt\n";
  ImportRequest asked = request(Target::kMegatron, {{"model_config.yaml", yaml}}, "dgx_h100");
  asked.arguments = "--tensor-model-parallel-size 2 --context-parallel-size 2";
  asked.nodes = 1;
  const auto run = import_settings(asked);
  ASSERT_TRUE(run.ok()) << run.error().message() << run.error().details;
  EXPECT_EQ(run->plan.model.family, "gpt2");
  EXPECT_EQ(run->plan.llm().cp, 2);
  EXPECT_EQ(run->plan.llm().dp, 2);
  EXPECT_EQ(run->plan.schedule.microbatches, 8);
  EXPECT_EQ(run->plan.model.config["vocab_size"], 50432);  // 50257 up to a multiple of 128 x tp
}

TEST(ImportMegatron, TakesTheLastOfAKeyThatStandsTwiceAndSaysSo) {
  const std::string yaml =
      "MODEL_ARGS:\n  --num-layers: 12\n  --hidden-size: 512\n  --num-attention-heads: 8\n  --micro-batch-size: 2\n"
      "  --global-batch-size: 64\n  --num-layers: 24\n  --merge-file: m.txt\n  --context-parallel-size: 4\n"
      "  --cp-comm-type: a2a+p2p\n  --hierarchical-context-parallel-sizes: \"[2 2]\"\nMODEL_ARGS_2:\n  --num-layers: "
      "3\n";
  ImportRequest asked = request(Target::kMegatron, {{"model_config.yaml", yaml}}, "dgx_h100");
  asked.nodes = 1;
  const auto run = import_settings(asked);
  ASSERT_TRUE(run.ok()) << run.error().message() << run.error().details;
  EXPECT_EQ(run->plan.model.config["n_layer"], 24);
  EXPECT_EQ(run->plan.llm().cp_ulysses, 2);
  ASSERT_FALSE(run->notes.empty());
  EXPECT_NE(run->notes.front().find("MODEL_ARGS.--num-layers stands twice in model_config.yaml"), std::string::npos)
      << run->notes.front();
}

TEST(ImportMegatron, ReadsListsOfArgumentsThatNoCommandUses) {
  const std::string lists =
      "TP=${TP:-2}\nCOMMON=(--bf16 --lr 1e-4 --train-iters 10)\nMODEL_OPTIONS=\"--num-layers 36 --hidden-size 4096 \\\n"
      "  --ffn-hidden-size 12288 --num-attention-heads 32 --group-query-attention --num-query-groups 8 \\\n"
      "  --kv-channels 128 --qk-layernorm --normalization RMSNorm --position-embedding-type rope --swiglu \\\n"
      "  --disable-bias-linear --untie-embeddings-and-output-weights --tokenizer-type HuggingFaceTokenizer\"\n"
      "BATCH=\"--micro-batch-size 1 --global-batch-size 16 --tensor-model-parallel-size $TP $MORE_ARGS\"\necho ready\n";
  ImportRequest asked = request(Target::kMegatron, {{"qwen3.sh", lists}}, "dgx_h100");
  asked.nodes = 1;
  for (const char* name : {"llama3-8b", "qwen3-8b"}) asked.known_models.push_back(*shipped().model(name));
  const auto run = import_settings(asked);
  ASSERT_TRUE(run.ok()) << run.error().message() << run.error().details;
  EXPECT_EQ(run->plan.llm().tp, 2);
  EXPECT_EQ(run->config["steps"], 10);
  EXPECT_EQ(find_key(*run, "tensor-model-parallel-size")->place, (Place{0, 1}));
  // The tokenizer's size is that of the model with these sizes, 151936, up to a multiple of 128 x tp.
  EXPECT_EQ(run->plan.model.config["vocab_size"], 152064);
  EXPECT_EQ(find_key(*run, "vocab-size")->fate, KeyFate::kDefault);
  EXPECT_NE(run->notes.front().find("COMMON, MODEL_OPTIONS, BATCH"), std::string::npos) << run->notes.front();
}

TEST(ImportMegatron, SettingsOfExpertsNeedExperts) {
  ImportRequest asked = request(Target::kMegatron, {}, "dgx_h100");
  asked.arguments =
      "--micro-batch-size 1 --tensor-model-parallel-size 2 --expert-tensor-parallel-size 4 --seq-length 512";
  asked.model = *shipped().model("llama3-8b");
  asked.nodes = 1;
  const auto run = import_settings(asked);
  ASSERT_TRUE(run.ok()) << run.error().message();
  EXPECT_EQ(find_key(*run, "expert-tensor-parallel-size")->fate, KeyFate::kIgnored);
  asked.model = *shipped().model("qwen3-30b-a3b");
  EXPECT_NE(problem_of(asked).find("expert-tensor-parallel-size 4"), std::string::npos) << problem_of(asked);
}

TEST(ImportMegatron, TheEmbeddingAndTheHeadMayHaveARateOfTheirOwn) {
  ImportRequest asked = request(Target::kMegatron, {}, "dgx_h100");
  asked.arguments =
      "--micro-batch-size 1 --seq-length 512 --train-iters 9 --lr 1e-4 --min-lr 1e-5 --decoupled-lr 2e-4 "
      "--decoupled-min-lr 3e-5";
  asked.model = *shipped().model("llama3-8b");
  asked.nodes = 1;
  const auto run = import_settings(asked);
  ASSERT_TRUE(run.ok()) << run.error().message();
  EXPECT_EQ(run->config["optimizer"]["rules"],
            Json::parse(R"([{"weights": "*embed_tokens.weight", "learning_rate": 2e-4},
                            {"weights": "*lm_head.weight", "learning_rate": 2e-4}])"));
  EXPECT_NE(run->notes.front().find("ends at 3e-05 there"), std::string::npos) << run->notes.front();
}

TEST(ImportMegatron, AnErrorOfAVariableThatIsReadTwiceIsListedOnce) {
  ImportRequest asked = request(Target::kMegatron,
                                {{"a.sh",
                                  "TP=$(nproc)\ntorchrun p.py --tensor-model-parallel-size $TP --micro-batch-size 1 "
                                  "--num-layers 2 --hidden-size 64 --num-attention-heads 4 --merge-file m\n"}},
                                "dgx_h100");
  const auto run = import_settings(asked);
  ASSERT_FALSE(run.ok());
  const std::string text = run.error().message() + run.error().details;
  const size_t first = text.find("depends on the command nproc");
  ASSERT_NE(first, std::string::npos) << text;
  EXPECT_EQ(text.find("depends on the command nproc", first + 1), std::string::npos) << text;
}

TEST(ImportMegatron, NamesWhatContradicts) {
  const auto problem = [&](const std::string& line, int64_t nodes = 1) {
    ImportRequest asked = request(Target::kMegatron, {}, "dgx_h100");
    asked.arguments = "--micro-batch-size 1 " + line;
    asked.model = *shipped().model("llama3-8b");
    asked.nodes = nodes;
    return problem_of(asked);
  };
  EXPECT_NE(problem("--tensor-model-parallel-size 3").find("does not divide the 8 devices"), std::string::npos);
  EXPECT_NE(problem("--pipeline-model-parallel-size 8 --num-layers-per-virtual-pipeline-stage 3")
                .find("does not divide the 4"),
            std::string::npos);
  EXPECT_NE(problem("--global-batch-size 12").find("is 12, which mbs 1 x dp 8 does not divide"), std::string::npos);
  EXPECT_NE(problem("--num-layers 33").find("num_hidden_layers is 32 in the model, and 33 in the files"),
            std::string::npos);
  EXPECT_NE(problem("--tensor-model-parallel-size two").find("is the text 'two', a whole number"), std::string::npos);
  EXPECT_NE(problem("--micro-batch-size 4665516852034113080").find("a whole number from 1 to"), std::string::npos);
  EXPECT_NE(problem("--bf16 --fp16").find("together with bf16"), std::string::npos);
  EXPECT_NE(
      problem("--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout Et*9x|t*23L").find("only E, t, L"),
      std::string::npos);
  EXPECT_NE(problem("--fp8-format hybrid").find("fp8-format hybrid"), std::string::npos);
  EXPECT_NE(problem("--fp8-format hybrid").find("--lenient"), std::string::npos);
  ImportRequest unknown = request(Target::kMegatron, {}, "dgx_h100");
  unknown.version = "core_v0.19";
  EXPECT_NE(problem_of(unknown).find("Did you mean 'core_v0.19.0'?"), std::string::npos);
}

TEST(ImportMegatron, RefusesWhatACommandDecides) {
  const std::string script =
      "TP=$(nvidia-smi -L | wc -l)\ntorchrun pretrain.py --tensor-model-parallel-size $TP --micro-batch-size 1 --lr "
      "1\n";
  ImportRequest asked = request(Target::kMegatron, {{"train.sh", script}}, "dgx_h100");
  asked.model = *shipped().model("llama3-8b");
  EXPECT_NE(problem_of(asked).find("tensor-model-parallel-size: depends on the command nvidia-smi in line 1"),
            std::string::npos)
      << problem_of(asked);
  asked.variables = {{"TP", "2"}};
  EXPECT_EQ(problem_of(asked), "it was read");
  asked.files[0].text = "torchrun pretrain.py --micro-batch-size 1 $(cat args)\n";
  asked.variables = {};
  EXPECT_NE(problem_of(asked).find("train.sh: line 1: some arguments depend on the command cat in line 1"),
            std::string::npos)
      << problem_of(asked);
}

TEST(ImportMegatron, TakesTheDefaultsOfARelease) {
  ImportRequest asked = request(Target::kMegatron, {}, "dgx_h100");
  asked.arguments = "--micro-batch-size 1 --use-megatron-fsdp";
  asked.model = *shipped().model("llama3-8b");
  asked.nodes = 1;
  EXPECT_EQ(import_settings(asked)->plan.llm().zero, 3);
  asked.version = "core_v0.16.1";
  EXPECT_EQ(import_settings(asked)->plan.llm().zero, 0);
}

constexpr const char* kOmniModel = R"({
  "image_encoder": {"vision_encoder": {"num_layers": 32, "hidden_size": 1280, "freeze": true},
                    "vision_projector": {"freeze": true}, "tp": 1, "pp": 1, "cp": 1},
  "audio_encoder": {"audio_encoder": {"num_layers": 32, "freeze": true}, "tp": 1, "pp": 1, "cp": 1},
  "text_decoder": {"num_layers": 28, "hidden_size": 3584, "ffn_hidden_size": 18944, "num_attention_heads": 28,
                   "tp": 4, "pp": 1, "cp": 1}})";

TEST(ImportMindspeedMm, ReadsModulesWithDegreesOfTheirOwn) {
  const std::string script =
      "MM_ARGS=\"--hetero-parallel --hetero-encoder-mbs-scale 1\"\n"
      "torchrun --nnodes 1 --nproc_per_node 8 pretrain_vlm.py $MM_ARGS --tensor-model-parallel-size 1 \\\n"
      " --pipeline-model-parallel-size 1 --micro-batch-size 4 --global-batch-size 256 --bf16 --sequence-parallel \\\n"
      " --use-distributed-optimizer --seq-length 4096 --lr 1.0e-5 --train-iters 10\n";
  const auto run =
      import_settings(request(Target::kMindspeedMm, {{"run.sh", script}, {"model.json", kOmniModel}}, "ascend_910b_8"));
  ASSERT_TRUE(run.ok()) << run.error().message() << run.error().details;
  const Plan& plan = run->plan;
  EXPECT_EQ(plan.model.name, "qwen2.5-omni-7b");
  for (const ModuleKind kind : {ModuleKind::kVision, ModuleKind::kAudio}) {
    EXPECT_EQ(plan.find(kind)->dp, 8);
    EXPECT_EQ(plan.find(kind)->placement, ModulePlacement::kColocated);
    EXPECT_EQ(mbs_scale_text(*plan.find(kind)), "1/4");
    EXPECT_TRUE(plan.workload.is_frozen(kind));
  }
  EXPECT_EQ(plan.llm().tp, 4);
  EXPECT_EQ(plan.llm().dp, 2);
  // The command line's batch is divided by the ranks of one replica of the llm.
  EXPECT_EQ(plan.workload.global_batch_samples, 64);
  ImportRequest wrong =
      request(Target::kMindspeedMm, {{"run.sh", script}, {"model.json", kOmniModel}}, "ascend_910b_8");
  wrong.arguments = "--tensor-model-parallel-size 2";
  EXPECT_NE(problem_of(wrong).find("is 2, but with hetero-parallel the system wants 1"), std::string::npos);
}

constexpr const char* kVlModel = R"({
  "image_encoder": {"vision_encoder": {"num_layers": 32, "hidden_size": 1280, "pipeline_num_layers": [32, 0, 0, 0]}},
  "text_decoder": {"num_layers": 28, "hidden_size": 3584, "ffn_hidden_size": 18944, "num_attention_heads": 28,
                   "pipeline_num_layers": [1, 10, 10, 7]}})";
constexpr const char* kVlScript =
    "torchrun --nnodes 1 --nproc_per_node 8 pretrain_vlm.py --tensor-model-parallel-size 1 --bf16 \\\n"
    " --pipeline-model-parallel-size 4 --micro-batch-size 1 --global-batch-size 32 --lr 1e-5 --train-iters 10 \\\n"
    " --mm-data data.json --mm-model model.json --load ckpt/mm\n";

TEST(ImportMindspeedMm, DataOfTheTrainingAreItsDataFile) {
  const std::string data = R"({"dataset_param": {"dataset_type": "huggingface",
    "preprocess_parameters": {"model_name_or_path": "models/qwen2-vl-7b"},
    "basic_parameters": {"dataset": "chats.json", "cutoff_len": 1024}}})";
  ImportRequest asked =
      request(Target::kMindspeedMm, {{"run.sh", kVlScript}, {"model.json", kVlModel}, {"set/data.json", data}},
              "ascend_910b_8");
  const auto run = import_settings(asked);
  ASSERT_TRUE(run.ok()) << run.error().message() << run.error().details;
  EXPECT_EQ(run->config["data"], Json({{"settings", "set/data.json"}, {"model", "models/qwen2-vl-7b"}}));
  EXPECT_EQ(find_key(*run, "dataset_param")->fate, KeyFate::kRead);
  EXPECT_TRUE(run->notes.empty()) << run->notes.front();
  asked.files.pop_back();
  EXPECT_EQ(import_settings(asked)->config["data"], "synthetic");
}

TEST(ImportMindspeedMm, WeightsThatAreConvertedForOtherStagesAreNamed) {
  const auto outcome_of = [](const std::string& conversion) {
    return problem_of(request(Target::kMindspeedMm,
                              {{"run.sh", kVlScript}, {"model.json", kVlModel}, {"convert.sh", conversion}},
                              "ascend_910b_8"));
  };
  const std::string command = "mm-convert Qwen2VLConverter hf_to_mm --cfg.mm_dir ckpt/mm \\\n";
  EXPECT_EQ(outcome_of(command + " --cfg.parallel_config.llm_pp_layers [[1,10,10,7]] \\\n"
                                 " --cfg.parallel_config.vit_pp_layers [[32,0,0,0]] --cfg.parallel_config.tp_size 1\n"),
            "it was read");
  // Two virtual stages of each rank there, one here.
  const std::string virtual_stages = outcome_of(
      command + " --cfg.parallel_config.llm_pp_layers=[[1,5,5,3],[0,5,5,4]] --cfg.parallel_config.tp_size 2\n");
  EXPECT_NE(virtual_stages.find("convert.llm_pp_layers: cuts the weights into [[1,5,5,3],[0,5,5,4]], but "
                                "text_decoder.pipeline_num_layers is [1,10,10,7] (convert.sh, line 2)"),
            std::string::npos)
      << virtual_stages;
  EXPECT_NE(virtual_stages.find("convert.tp_size: cuts the weights for tp 2, but the training has 1"),
            std::string::npos)
      << virtual_stages;
}

TEST(ImportMindspeedMm, SettingsOfAModelFileThatAreOfAnotherTypeAreNamed) {
  const std::string model =
      R"({"text_decoder": {"num_layers": "many", "pipeline_num_layers": {"first": 1}, "tp": [1]}})";
  ImportRequest asked = request(Target::kMindspeedMm, {{"run.sh", kVlScript}, {"model.json", model}}, "ascend_910b_8");
  asked.model = *shipped().model("qwen2-vl-7b");
  asked.arguments = "--hetero-parallel --pipeline-model-parallel-size 1";
  const std::string problem = problem_of(asked);
  EXPECT_NE(problem.find("text_decoder.num_layers: is the text 'many', a number is needed"), std::string::npos)
      << problem;
  EXPECT_NE(problem.find("text_decoder.pipeline_num_layers: is a section"), std::string::npos) << problem;
  EXPECT_NE(problem.find("text_decoder.tp: is a list"), std::string::npos) << problem;
}

TEST(ImportMindspeedRl, SectionsThatAreNoneAreNamed) {
  ImportRequest asked = request(
      Target::kMindspeedRl, {{"grpo.yaml", "actor_config:\n  micro_batch_size: 1\nrl_config: 3\n"}}, "ascend_910b_8");
  asked.model = *shipped().model("llama3-8b");
  EXPECT_NE(problem_of(asked).find("rl_config: is the number 3, a section with settings is needed (grpo.yaml, line 3)"),
            std::string::npos)
      << problem_of(asked);
}

TEST(ImportMegatron, WeightsThatAreConvertedForOtherDegreesAreNamed) {
  const std::string script =
      "python tools/checkpoint/convert.py --model-type GPT --target-tensor-parallel-size 4 "
      "--target-pipeline-parallel-size 1 --load-dir a --save-dir b\n"
      "torchrun pretrain_gpt.py --tensor-model-parallel-size 2 --micro-batch-size 1 --load b --lr 1\n";
  ImportRequest asked = request(Target::kMegatron, {{"train.sh", script}}, "dgx_h100");
  asked.model = *shipped().model("llama3-8b");
  EXPECT_NE(problem_of(asked).find("convert.tensor-parallel-size: cuts the weights for tp 4, but the training has 2"),
            std::string::npos)
      << problem_of(asked);
}

TEST(ImportMindspeedMm, ReadsTheResultOfItsSearch) {
  const std::string result = R"({"parallel_config": {"PP": 8, "TP": 2, "DP": 4, "MBS": 1},
    "layer_placement": {"vit_layer_placement": [32, 0, 0, 0, 0, 0, 0, 0], "llm_layer_placement": [5, 11, 11, 11, 11, 11, 11, 9]},
    "layer_recompute": {"vit_layer_recompute": [0, 0, 0, 0, 0, 0, 0], "llm_layer_recompute": [0, 10, 9, 9, 9, 7, 4]},
    "e2e_time": 8992.0, "throughput": 761.58})";
  ImportRequest asked = request(Target::kMindspeedMm, {{"result.json", result}}, "ascend_910b_16");
  asked.model = *shipped().model("qwen2-vl-72b");
  asked.arguments = "--global-batch-size 128 --bf16 --use-distributed-optimizer";
  const auto run = import_settings(asked);
  ASSERT_TRUE(run.ok()) << run.error().message() << run.error().details;
  const ModulePlan& llm = run->plan.llm();
  EXPECT_EQ(run->plan.world_size, 64);
  EXPECT_EQ(llm.pp, 8);
  EXPECT_EQ(llm.dp, 4);
  EXPECT_EQ(llm.layers[0].front(), 5);
  EXPECT_EQ(llm.layers[7].front(), 9);
  EXPECT_EQ(llm.recompute[1].front().count(BlockRecompute::kFull), 10);
  EXPECT_EQ(llm.recompute[7].front().count(BlockRecompute::kFull), 0);
  EXPECT_EQ(run->plan.find(ModuleKind::kVision)->layers[0].front(), 32);
  EXPECT_TRUE(has_note(*run, "llm_layer_recompute has 7 entries for 8 stages"));
  EXPECT_TRUE(has_note(*run, "vit_layer_recompute has 7 entries for 8 stages"));
}

TEST(ImportMindspeedMm, AsksForASearchWhereTheScriptDoes) {
  const std::string script =
      "python pretrain_vlm.py --tensor-model-parallel-size 4 --pipeline-model-parallel-size 2 --micro-batch-size 1 \\\n"
      " --global-batch-size 512 --bf16 --auto-parallel-mm --nnodes 1 --nproc-per-node 8 --simulated-nnodes 8 \\\n"
      " --simulated-nproc-per-node 16\n";
  ImportRequest asked = request(Target::kMindspeedMm, {{"run.sh", script}}, "ascend_910b_8");
  asked.model = *shipped().model("qwen2-vl-72b");
  const auto run = import_settings(asked);
  ASSERT_TRUE(run.ok()) << run.error().message() << run.error().details;
  EXPECT_TRUE(run->searches);
  EXPECT_EQ(run->plan.cluster.num_devices(), 128);
  EXPECT_EQ(run->plan.workload.global_batch_samples, 512);
}

constexpr const char* kMindformersYaml = R"(seed: 3
use_parallel: True
runner_config: {epochs: 2, batch_size: 1}
optimizer: {type: AdamW, betas: [0.9, 0.95], eps: 1.e-8}
lr_schedule: {type: CosineWithWarmUpLR, learning_rate: 1.e-5, lr_end: 1.e-6, warmup_ratio: 0.1, total_steps: 200}
train_dataset: &train_dataset
  data_loader: {type: MindDataset}
train_dataset_task:
  dataset_config: *train_dataset
parallel:
  parallel_mode: 1
  gradients_mean: False
  enable_alltoall: False
  full_batch: True
  search_mode: "sharding_propagation"
  enable_parallel_optimizer: True
  strategy_ckpt_save_file: "./ckpt_strategy.ckpt"
  parallel_optimizer_config: {gradient_accumulation_shard: False, parallel_optimizer_threshold: 64}
parallel_config:
  data_parallel: 2
  model_parallel: 2
  pipeline_stage: 4
  use_seq_parallel: True
  micro_batch_num: 8
  vocab_emb_dp: True
  gradient_aggregation_group: 4
micro_batch_interleave_num: 1
recompute_config: {recompute: [1, 2, 0, 0], select_recompute: False, mp_comm_recompute: True}
callbacks:
  - type: CheckpointMonitor
    save_checkpoint_steps: 50
    keep_checkpoint_max: 2
model:
  model_config: {type: LlamaConfig, seq_length: 4096, hidden_size: 4096, num_layers: 32, num_heads: 32, n_kv_heads: 8,
                 vocab_size: 128256, intermediate_size: 14336, compute_dtype: "bfloat16", param_init_type: "float32",
                 offset: [-1, 0, 0, 1]}
)";

TEST(ImportMindformers, ReadsAFile) {
  const auto run =
      import_settings(request(Target::kMindformers, {{"finetune.yaml", kMindformersYaml}}, "ascend_910b_8"));
  ASSERT_TRUE(run.ok()) << run.error().message() << run.error().details;
  const ModulePlan& llm = run->plan.llm();
  EXPECT_EQ(run->plan.world_size, 16);
  EXPECT_EQ(run->plan.cluster.nodes, 2);
  EXPECT_EQ(llm.layers, (std::vector<std::vector<int64_t>>{{7}, {8}, {8}, {9}}));
  EXPECT_EQ(llm.recompute[1].front().count(BlockRecompute::kFull), 2);
  EXPECT_EQ(llm.zero, 1);
  EXPECT_TRUE(llm.sequence_parallel);
  EXPECT_EQ(run->plan.schedule.microbatches, 8);
  EXPECT_EQ(run->plan.workload.global_batch_samples, 16);
  EXPECT_EQ(run->config["steps"], 200);
  EXPECT_EQ(run->config["checkpoints"]["keep"], 2);
  EXPECT_EQ(find_key(*run, "parallel.gradients_mean")->fate, KeyFate::kIgnored);
  EXPECT_NE(find_key(*run, "parallel.gradients_mean")->meaning.find("one sum over all tokens"), std::string::npos);
}

TEST(ImportMindformers, NamesWhatIsWrong) {
  const auto problem = [&](std::string from, const std::string& to) {
    std::string yaml = kMindformersYaml;
    yaml.replace(yaml.find(from), from.size(), to);
    return problem_of(request(Target::kMindformers, {{"finetune.yaml", yaml}}, "ascend_910b_8"));
  };
  EXPECT_NE(problem("data_parallel: 2", "data_parallel: two").find("a whole number"), std::string::npos);
  EXPECT_NE(problem("offset: [-1, 0, 0, 1]", "offset: [-1, 0, 0, 0]").find("gives 31 layers"), std::string::npos);
  EXPECT_NE(problem("parallel_mode: 1", "parallel_mode: 0").find("is 0, data parallel"), std::string::npos);
  EXPECT_NE(problem("seed: 3", "seed: !include other.yaml").find("the tag !include is not read"), std::string::npos);
  EXPECT_NE(problem("micro_batch_num: 8", "micro_batch_num: 4665516852034113080").find("from 1 to"), std::string::npos);
  EXPECT_NE(problem("micro_batch_num: 8", "micro_batch_num: 900000000000000").find("at most 262144"),
            std::string::npos);
  EXPECT_NE(problem("micro_batch_num: 8", "micro_batch_num: 2").find("needs at least as many"), std::string::npos);
  EXPECT_NE(problem("seed: 3", "sneaky_new_parallelism: 7").find("sneaky_new_parallelism 7"), std::string::npos);
  EXPECT_NE(problem("*train_dataset", "*nothing").find("finetune.yaml"), std::string::npos);
}

TEST(ImportMindspeedRl, ReadsTheActor) {
  const std::string yaml =
      "megatron_training: {sequence_parallel: true, bf16: true, use_distributed_optimizer: true, seq_length: 2048,\n"
      "  train_iters: 500, global_batch_size: 32}\n"
      "actor_config: {model: small, micro_batch_size: 4, tensor_model_parallel_size: 2, pipeline_model_parallel_size: "
      "2,\n"
      "  num_layers_per_virtual_pipeline_stage: 7, lr: 1e-6, lr_decay_style: constant}\n"
      "rl_config: {mini_batch_size: 32, n_samples_per_prompt: 8, gamma: 1.0, actor_resource: {num_npus: 16}}\n";
  const std::string model =
      "small: {num_layers: 28, hidden_size: 3584, ffn_hidden_size: 18944, num_attention_heads: 28, rotary_base: "
      "1000000,\n"
      "  padded_vocab_size: 152064, untie_embeddings_and_output_weights: true, add_qkv_bias: true,\n"
      "  disable_bias_linear: true, group_query_attention: true, num_query_groups: 4, position_embedding_type: rope,\n"
      "  normalization: RMSNorm, norm_epsilon: 1e-6, swiglu: true}\n";
  const auto run =
      import_settings(request(Target::kMindspeedRl, {{"grpo.yaml", yaml}, {"small.yaml", model}}, "ascend_910b_8"));
  ASSERT_TRUE(run.ok()) << run.error().message() << run.error().details;
  EXPECT_EQ(run->plan.model.family, "qwen2");
  EXPECT_EQ(num_parameters(run->plan.model), num_parameters(*shipped().model("qwen2.5-7b")));
  EXPECT_EQ(run->plan.world_size, 16);
  EXPECT_EQ(run->plan.llm().vpp, 2);
  EXPECT_EQ(run->plan.llm().zero, 1);
  EXPECT_EQ(run->plan.workload.global_batch_samples, 256);
  EXPECT_EQ(run->plan.schedule.microbatches, 16);
  EXPECT_NE(problem_of(request(Target::kMindspeedRl, {{"grpo.yaml", yaml}}, "ascend_910b_8")).find("model/small.yaml"),
            std::string::npos);
}

}  // namespace
}  // namespace weft
