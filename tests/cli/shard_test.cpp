#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include <gtest/gtest.h>

#include "tests/cli/run_program.h"
#include "weft/base/json.h"

namespace weft {
namespace {

class ShardVerb : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("weft_shard_" + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& text) const {
    const std::string path = (folder_ / name).string();
    std::ofstream(path) << text;
    return path;
  }
  static ProgramRun shard(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "shard");
    return run_weft(arguments);
  }
  static std::vector<std::string> layer(const std::string& mesh, const std::string& nodes) {
    return {"--model", "llama3-8b", "--block", "layer", "--mesh", mesh, "--cluster", "dgx_h100", "--nodes", nodes};
  }
  static Json json_of(std::vector<std::string> arguments) {
    arguments.emplace_back("--json");
    const ProgramRun run = shard(arguments);
    EXPECT_EQ(run.exit_status, 0) << run.err;
    return run.exit_status == 0 ? Json::parse(run.out) : Json();
  }

  std::filesystem::path folder_;
};

std::vector<std::string> with(std::vector<std::string> arguments, const std::vector<std::string>& more) {
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

Json choice_of(const Json& report, const std::string& name) {
  for (const Json& op : report["operators"]) {
    if (op["name"] == name) return op["choice"];
  }
  ADD_FAILURE() << "no operator " << name;
  return {};
}

TEST_F(ShardVerb, WhatItWritesIsReadBackAsTheSameStrategy) {
  const std::string file = (folder_ / "strategy.yaml").string();
  const Json found = json_of(with(layer("tp=8,dp=2", "2"), {"--out", file}));
  EXPECT_EQ(found["optimal"], true);
  EXPECT_GT(found["predicted_ms"].get<double>(), 0);
  EXPECT_EQ(found["operators"].size(), 11u);
  const Json again = json_of(with(layer("tp=8,dp=2", "2"), {"--strategy", file}));
  EXPECT_EQ(again["mode"], "explicit");
  EXPECT_NEAR(again["predicted_ms"].get<double>(), found["predicted_ms"].get<double>(), 1e-9);
  for (const Json& op : found["operators"]) EXPECT_EQ(choice_of(again, op["name"]), op["choice"]);
  // For another program it is refused, with the first operator that differs.
  const ProgramRun other = shard({"--model", "qwen3-8b", "--block", "layer", "--mesh", "tp=8,dp=2", "--cluster",
                                  "dgx_h100", "--nodes", "2", "--strategy", file});
  EXPECT_EQ(other.exit_status, 2);
  EXPECT_NE(other.err.find("another program: operator 2"), std::string::npos) << other.err;
}

TEST_F(ShardVerb, SemiWithoutPinsIsDataParallelism) {
  const Json report = json_of(with(layer("tp=8,dp=2", "2"), {"--mode", "semi", "--samples", "16"}));
  for (const Json& op : report["operators"]) {
    for (const auto& [axis, choice] : op["choice"].items()) EXPECT_EQ(choice, "cut b") << op["name"] << " " << axis;
  }
}

TEST_F(ShardVerb, PyTorchsExampleOfTwoDimensionsIsUnderstood) {
  // dp 8 × tp 8: column-wise, row-wise and sequence-parallel modules beside data parallelism.
  const std::string file = write("torch.yaml",
                                 "weft_strategy: 1\nmesh: {tp: 8, dp: 8}\noperators:\n"
                                 "  \"*\": {dp: b}\n  \"*.norm\": SequenceParallel\n"
                                 "  attention.qkv: ColwiseParallel\n  attention.out: {tp: RowwiseParallel}\n"
                                 "  mlp.gate_up: ColwiseParallel\n  mlp.down: RowwiseParallel\n");
  const Json report = json_of(with(layer("tp=8,dp=8", "8"), {"--strategy", file, "--samples", "8"}));
  EXPECT_EQ(choice_of(report, "attention.qkv")["tp"], "cut k");
  EXPECT_EQ(choice_of(report, "attention.core")["tp"], "cut k");
  EXPECT_EQ(choice_of(report, "attention.out")["tp"], "cut k");
  EXPECT_EQ(choice_of(report, "attention.sum")["tp"], "cut s");
  EXPECT_EQ(choice_of(report, "mlp.activation")["tp"], "cut f");
  EXPECT_EQ(choice_of(report, "mlp.sum")["tp"], "cut s");
  EXPECT_FALSE(report["transitions"].empty());
  EXPECT_FALSE(report["pins"].empty());
}

TEST_F(ShardVerb, SaysWhatIsWrong) {
  const auto message = [](const std::vector<std::string>& arguments, int status = 2) {
    const ProgramRun run = shard(arguments);
    EXPECT_EQ(run.exit_status, status) << run.out;
    return run.err;
  };
  const auto expect = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  expect(message(layer("tp=8", "2")), "tp 8 has 8 ranks, but the cluster dgx_h100 has 16 devices");
  expect(message(layer("tp=8,dp", "1")), "'dp' is no axis with its size");
  expect(message({"--mesh", "tp=8", "--cluster", "dgx_h100"}), "neither --program nor --model");
  expect(message(with(layer("tp=8", "1"), {"--mode", "semy"})), "Did you mean 'semi'");
  expect(message(with(layer("tp=8", "1"), {"--mode", "3"})), "a plan with all of its settings");
  const auto pins = [&](const std::string& text) {
    return message(with(layer("tp=8", "1"), {"--strategy", write("pins.yaml", "weft_strategy: 1\n" + text)}));
  };
  expect(pins("operators: {attention.qkv: {tp: q}}\n"), "attention.qkv: 'q' is no choice of the rule");
  expect(pins("operators: {attention.qk: {tp: k}}\n"), "Did you mean 'attention.qkv'");
  expect(pins("operators: {\"*\": {tp: b}, mlp.down: {tp: f}}\n"), "mlp.down is pinned to 'cut f' on tp");
  expect(pins("operators: {mlp.down: {cp: f}}\n"), "has no axis 'cp'");
  expect(pins("mode: explicit\noperators: {mlp.down: {tp: f}}\n"), "attention.norm has no choice on tp");
  expect(pins("forbid: [sends]\n"), "'sends' cannot be forbidden");
  expect(pins("mode: data\noperators: {mlp.down: {tp: f}}\n"),
         "mlp.down is pinned to 'cut f' on tp, but in mode data it does 'cut b'");
  expect(pins("inputs: {\"*\": {tp: b}, x: {tp: s}}\n"),
         "x is in shards of 's' on tp, but '*' makes it in shards of 'b'");
  expect(pins("inputs: {y: {tp: b}}\n"), "no input of llama3-8b.layer fits the pattern. Known are x");
  expect(pins("zero: {\"*\": {tp: 1}, \"*.qkv.*\": {tp: 3}}\n"), "has stage 3 on tp, but '*' gives it 1");
  expect(pins("mode: semi\nparallel_mode: 2\n"), "parallel_mode: says auto, where another word for it says semi");
  const std::string whole = write("whole.yaml", "weft_strategy: 1\nfull_batch: true\ninputs: {\"*\": {tp: b}}\n");
  expect(message({"--model", "llama3-8b", "--mesh", "tp=8", "--cluster", "dgx_h100", "--strategy", whole}),
         "full_batch: has every rank read all of");
  expect(message(layer("tp=4,tp=2", "1")), "--mesh: axis 'tp' is given twice");
  expect(message(layer("a=2,b=2,c=2,d=2", "2"), 1), "with its dims b s h has");
  expect(message(with(layer("tp=8", "1"), {"--search", "propagate", "--memory-gib", "0.01"}), 1),
         "what the propagating search found takes");
  expect(message(with(layer("tp=8", "1"), {"--memory-gib", "0.01"}), 1), "the least that one takes is");
  const std::string program = write("p.txt", "weft_program 1 p\ndim b 8\ninput x [b h]\n");
  expect(message({"--program", program, "--mesh", "tp=8", "--cluster", "dgx_h100"}),
         "line 3: x: the dim 'h' does not exist");
}

TEST_F(ShardVerb, LayersThatDifferAreRowsOfTheirOwn) {
  const std::vector<std::string> tight = with(
      {"--model", "llama3-8b", "--mesh", "tp=8,dp=8", "--cluster", "dgx_h100", "--nodes", "8"}, {"--memory-gib", "22"});
  const Json report = json_of(tight);
  std::map<std::string, std::set<int64_t>> layers;
  std::map<std::string, int64_t> times;
  double compute_ms = 0;
  for (const Json& op : report["operators"]) {
    times[op["name"]] += op["times"].get<int64_t>();
    compute_ms += op["times"].get<double>() * op["compute_ms"].get<double>();
    if (!op.contains("layers")) continue;
    EXPECT_EQ(op["layers"].size(), op["times"].get<size_t>());
    for (const Json& layer : op["layers"]) EXPECT_TRUE(layers[op["name"]].insert(layer.get<int64_t>()).second);
  }
  ASSERT_FALSE(layers.empty());
  for (const auto& [name, which] : layers) EXPECT_EQ(which.size(), 32U) << name;
  for (const auto& [name, count] : times) EXPECT_EQ(count, name.starts_with("layers.") ? 32 : 1) << name;
  // Every layer is there once: what rows compute adds up.
  EXPECT_NEAR(compute_ms, report["compute_ms"].get<double>(), 1e-6 * compute_ms);
  const ProgramRun text = shard(tight);
  EXPECT_NE(text.out.find("layers.mlp.down ["), std::string::npos) << text.out;
}

TEST_F(ShardVerb, PyTorchsExampleIsUnderstoodForAWholeModel) {
  const std::string file = write("torch.yaml",
                                 "weft_strategy: 1\nmesh: {tp: 8, dp: 8}\noperators:\n"
                                 "  embedding: RowwiseParallel\n  \"*norm\": SequenceParallel\n"
                                 "  \"*.qkv\": ColwiseParallel\n  \"*.out\": RowwiseParallel\n"
                                 "  \"*.gate_up\": ColwiseParallel\n  \"*.down\": RowwiseParallel\n"
                                 "  logits: ColwiseParallel\n");
  const Json report = json_of({"--model", "llama3-8b", "--mesh", "tp=8,dp=8", "--cluster", "dgx_h100", "--nodes", "8",
                               "--samples", "8", "--strategy", file});
  EXPECT_EQ(choice_of(report, "embedding")["tp"], "cut v");
  EXPECT_EQ(choice_of(report, "norm")["tp"], "cut s");
  EXPECT_EQ(choice_of(report, "logits")["tp"], "cut v");
  EXPECT_EQ(choice_of(report, "loss")["tp"], "cut v");
  for (const Json& op : report["operators"]) EXPECT_EQ(op["choice"]["dp"], "cut b") << op["name"];
}

TEST_F(ShardVerb, ModelsOfEveryKindHavePrograms) {
  for (const char* model : {"llama3-8b", "qwen2.5-7b", "qwen3-8b", "qwen3-30b-a3b", "qwen2.5-vl-7b"}) {
    const Json report = json_of({"--model", model, "--mesh", "tp=8", "--cluster", "dgx_h100"});
    EXPECT_EQ(report["optimal"], true) << model;
  }
  for (const auto& [model, block] : {std::pair{"qwen2.5-vl-7b", "vision"},
                                     {"qwen3-vl-4b", "vision"},
                                     {"internvl3-8b", "vision"},
                                     {"qwen2.5-omni-7b", "audio"}}) {
    const Json tower = json_of({"--model", model, "--block", block, "--mesh", "tp=8", "--cluster", "dgx_h100"});
    EXPECT_EQ(tower["optimal"], true) << model;
  }
}

}  // namespace
}  // namespace weft
