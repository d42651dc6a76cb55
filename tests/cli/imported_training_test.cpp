#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "tests/cli/run_program.h"
#include "tests/support/source_tree.h"
#include "weft/base/json.h"

namespace weft {
namespace {

constexpr const char* kScript = R"(TP=2
PP=2
torchrun --nproc-per-node 4 --nnodes 1 pretrain_gpt.py \
  --tensor-model-parallel-size $TP --pipeline-model-parallel-size $PP --sequence-parallel \
  --num-layers 4 --hidden-size 64 --ffn-hidden-size 128 --num-attention-heads 4 --group-query-attention \
  --num-query-groups 2 --seq-length 64 --max-position-embeddings 64 --micro-batch-size 1 --global-batch-size 4 \
  --swiglu --normalization RMSNorm --position-embedding-type rope --disable-bias-linear \
  --untie-embeddings-and-output-weights --vocab-size 512 --make-vocab-size-divisible-by 1 --lr 1e-3 \
  --lr-decay-style cosine --train-iters 6 --bf16 --tokenizer-type NullTokenizer --weight-decay 0.1 --clip-grad 1.0 \
  --seed 7 --attention-dropout 0 --hidden-dropout 0
)";

TEST(ImportedTraining, TheRunOfAScriptTrainsAsItIsWritten) {
  const std::string folder = testing::TempDir() + "/weft_imported_training";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/train.sh") << kScript;
  const ProgramRun imported = run_weft({"import", "--from", "megatron", folder + "/train.sh", "--cluster",
                                        (source_tree() / "scenarios/clusters/local_cpu.yaml").string(), "--out",
                                        folder + "/plan.json", "--config-out", folder + "/train.yaml", "--json"});
  ASSERT_EQ(imported.exit_status, 0) << imported.err;
  EXPECT_EQ(Json::parse(imported.out)["config"]["device"], "cpu");
  const ProgramRun run = run_weft({"train", "--plan", folder + "/plan.json", "--config", folder + "/train.yaml",
                                   "--run", folder + "/run", "--json"});
  ASSERT_EQ(run.exit_status, 0) << run.err;
  std::ifstream metrics(folder + "/run/metrics.jsonl");
  std::vector<Json> steps;
  for (std::string line; std::getline(metrics, line);) steps.push_back(Json::parse(line));
  ASSERT_EQ(steps.size(), 6U);
  EXPECT_LT(steps.back()["loss"].get<double>(), steps.front()["loss"].get<double>());
  EXPECT_DOUBLE_EQ(steps.front()["learning_rate"].get<double>(), 1e-3);
}

}  // namespace
}  // namespace weft
