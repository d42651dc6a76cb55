#include <filesystem>

#include <gtest/gtest.h>

#include "tests/cli/run_program.h"
#include "tests/support/source_tree.h"
#include "weft/base/file.h"
#include "weft/base/json.h"

namespace weft {
namespace {

const std::string kScenarios = source_tree().string() + "/scenarios";

Json describe_json(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "describe");
  arguments.push_back("--json");
  const ProgramRun run = run_weft(arguments);
  EXPECT_EQ(run.exit_status, 0) << run.err;
  EXPECT_EQ(run.err, "");
  return Json::parse(run.out);
}

/// A wrong input ends in exit 2, nothing on standard output and one line on standard error that holds `parts`.
void expect_refused(const std::vector<std::string>& arguments, const std::vector<std::string>& parts) {
  const ProgramRun run = run_weft(arguments);
  EXPECT_EQ(run.exit_status, 2) << run.err;
  EXPECT_EQ(run.out, "");
  EXPECT_EQ(run.err.find("weft: "), 0u) << run.err;
  EXPECT_EQ(run.err.find('\n'), run.err.size() - 1) << "one line: " << run.err;
  EXPECT_LT(run.err.size(), 1000u);
  for (const std::string& part : parts)
    EXPECT_NE(run.err.find(part), std::string::npos) << "no '" << part << "' in " << run.err;
}

TEST(Describe, CountsTheParametersOfEveryModule) {
  const Json vl = describe_json({"--model", "qwen2-vl-72b"});
  EXPECT_EQ(vl["parameters"], (Json{{"vision", 699356672}, {"llm", 72706203648}, {"total", 73405560320}}));
  const Json omni = describe_json({"--model", "qwen2.5-omni-7b"});
  EXPECT_EQ(omni["parameters"],
            (Json{{"vision", 676550144}, {"audio", 639647232}, {"llm", 7615616512}, {"total", 8931813888}}));
  const Json text = describe_json({"--model", kScenarios + "/models/llama3-8b.json"});
  EXPECT_EQ(text["parameters"], (Json{{"llm", 8030261248}, {"total", 8030261248}}))
      << "modules that are not there are absent";
}

TEST(Describe, BlocksAddUpToTheirModule) {
  const Json omni = describe_json({"--model", "qwen2.5-omni-7b", "--workload", "omni_short"});
  ASSERT_EQ(omni["modules"].size(), 3u);
  for (const auto& [name, module] : omni["modules"].items()) {
    int64_t parameters = 0;
    double flops = 0, bytes = 0;
    for (const Json& block : module["blocks"]) {
      parameters += block["count"].get<int64_t>() * block["parameters_each"].get<int64_t>();
      flops += block["count"].get<double>() * block["forward_flops_per_sample_each"].get<double>();
      bytes += block["count"].get<double>() * block["activation_bytes_per_token_each"].get<double>();
    }
    EXPECT_EQ(parameters, module["parameters"].get<int64_t>()) << name;
    EXPECT_NEAR(flops / module["forward_flops_per_sample"].get<double>(), 1.0, 1e-12) << name;
    EXPECT_NEAR(bytes / module["activation_bytes_per_token"].get<double>(), 1.0, 1e-12) << name;
  }
  EXPECT_GT(omni["training_flops_per_step"].get<double>(), 2.9 * 256 * omni["forward_flops_per_sample"].get<double>());
}

TEST(Describe, TablesNameModulesBlocksAndTotals) {
  const ProgramRun run = run_weft({"describe", "--model", "qwen2.5-vl-7b"});
  EXPECT_EQ(run.exit_status, 0) << run.err;
  for (const char* part : {"8,292,166,656 parameters", "vision", "layer, windowed attention", "merger", "llm",
                           "training step", "vl_sft"}) {
    EXPECT_NE(run.out.find(part), std::string::npos) << "no '" << part << "' in\n" << run.out;
  }
}

TEST(Describe, NodesOverridesTheClusterFile) {
  const Json json = describe_json({"--cluster", "ascend_910b_16", "--nodes", "8"});
  EXPECT_EQ(json["cluster"]["nodes"], 8);
  EXPECT_EQ(describe_json({"--cluster", "ascend_910b_16", "--nodes", "62500"})["cluster"]["devices"], 1'000'000)
      << "the most that is allowed";
  expect_refused({"describe", "--cluster", "ascend_910b_16", "--nodes", "62501"},
                 {"--nodes", "62501 nodes × 16 = 1000016 devices, at most 1000000"});
  EXPECT_EQ(json["cluster"]["devices"], 128);
  expect_refused({"describe", "--nodes", "8", "--model", "llama3-8b"}, {"--nodes", "without a cluster"});
  expect_refused({"describe", "--cluster", "dgx_h100", "--nodes", "0"}, {"--nodes", "is '0'"});
  expect_refused({"describe", "--cluster", "dgx_h100", "--nodes", "many"}, {"--nodes", "many"});
  expect_refused({"describe", "--cluster", "dgx_h100", "--nodes", "99999999999999999999"}, {"--nodes"});
}

TEST(Describe, ADefaultWorkloadThatDoesNotFitLeavesTheParameters) {
  TemporaryFolder folder;
  Json config = Json::parse(R"({"model_type": "qwen2_vl", "vocab_size": 100, "hidden_size": 64, "intermediate_size": 64,
    "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 4, "vision_config": {"depth": 1, "embed_dim": 32, "hidden_size": 64,
    "num_heads": 4, "spatial_merge_size": 5}})");
  const std::string path = folder.write("config.json", config.dump());
  const Json json = describe_json({"--model", path});
  EXPECT_GT(json["parameters"]["total"].get<int64_t>(), 0);
  EXPECT_NE(json["note"].get<std::string>().find("vl_sft.yaml: patches_per_image"), std::string::npos);
  expect_refused({"describe", "--model", path, "--workload", "vl_sft"},
                 {"vl_sft.yaml", "patches_per_image", "multiples of 25"});
}

TEST(Describe, WrongFilesAreRefusedWithFileAndField) {
  const TemporaryFolder folder;
  const auto model = [&](const std::string& name, const std::string& text) {
    return std::vector<std::string>{"describe", "--model", folder.write(name, text)};
  };
  const std::string llama =
      R"("model_type": "llama", "vocab_size": 100, "intermediate_size": 64, "num_hidden_layers": 2)";
  expect_refused(model("truncated.json", "{" + llama + ", \"hidden_"), {"truncated.json", "not valid JSON", "line 1"});
  expect_refused(model("empty.json", ""), {"empty.json", "not valid JSON"});
  expect_refused(model("text.json", "hello"), {"text.json", "not valid JSON"});
  expect_refused(model("list.json", "[]"), {"list.json", "is a list"});
  expect_refused(model("types.json", "{" + llama + R"(, "hidden_size": "big", "num_attention_heads": 4})"),
                 {"types.json: hidden_size: is the text 'big'"});
  expect_refused(model("negative.json", "{" + llama + R"(, "hidden_size": -64, "num_attention_heads": 4})"),
                 {"negative.json: hidden_size: is -64"});
  expect_refused(model("absurd.json", "{" + llama + R"(, "hidden_size": 99999999999999, "num_attention_heads": 4})"),
                 {"absurd.json: hidden_size"});
  expect_refused(model("overflow.json", "{" + llama + R"(, "hidden_size": 1e400, "num_attention_heads": 4})"),
                 {"overflow.json: hidden_size: is not valid JSON"});
  expect_refused(model("nan.json", "{" + llama + R"(, "hidden_size": NaN, "num_attention_heads": 4})"),
                 {"nan.json: hidden_size: is not valid JSON"});
  expect_refused(model("heads.json", "{" + llama + R"(, "hidden_size": 64, "num_attention_heads": 5})"),
                 {"heads.json: num_attention_heads: is 5, which does not divide hidden_size 64"});
  expect_refused(model("family.json", R"({"model_type": "lama"})"),
                 {"family.json: model_type", "'lama'", "Did you mean 'llama'?"});
  expect_refused(model("deep.json", std::string(100'000, '[')), {"deep.json", "nested more than 64 levels"});
  expect_refused(model("deep.yaml", std::string(100'000, '[') + std::string(100'000, ']')),
                 {"deep.yaml", "nested more than 64 levels"});
  expect_refused(model("binary.json", std::string("\0\1\2\xff", 4)), {"binary.json", "not valid JSON"});
  expect_refused({"describe", "--model", folder.path().string()}, {"folder without a config.json"});
  expect_refused({"describe", "--model", (folder.path() / "none.json").string()},
                 {"none.json", "neither a file nor the name of a model"});
  expect_refused({"describe", "--model", "/proc/self/mem"}, {"/proc/self/mem", "cannot be read"});
  expect_refused({"describe", "--model", ""}, {"'' is neither a file nor the name of a model"});
}

TEST(Describe, AFolderThatCannotBeRunIsDescribedWithTheReason) {
  const TemporaryFolder folder;
  const std::string quantised = folder.write(
      "quantised.json",
      R"({"model_type": "llama", "vocab_size": 100, "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2,
          "num_attention_heads": 4, "quantization_config": {"quant_method": "awq"}})");
  const ProgramRun run = run_weft({"describe", "--model", quantised});
  EXPECT_EQ(run.exit_status, 0) << run.err;
  EXPECT_NE(run.out.find("note: quantization_config: says that weights are quantised by 'awq'"), std::string::npos)
      << run.out;
  const Json json = describe_json({"--model", quantised});
  EXPECT_NE(json["model"]["not_run"].get<std::string>().find("quantised"), std::string::npos);
  EXPECT_FALSE(describe_json({"--model", "llama3-8b"})["model"].contains("not_run"));
}

TEST(Describe, AHugeFileIsRefusedWithoutBeingRead) {
  const TemporaryFolder folder;
  const std::string path = folder.write("huge.json", "{");
  std::filesystem::resize_file(path, 1'000'000'000);
  expect_refused({"describe", "--model", path}, {"huge.json", "larger than the 4.00 MiB"});
  expect_refused({"describe", "--workload", path}, {"huge.json", "larger than the 4.00 MiB"});
}

TEST(Describe, ClustersAndWorkloadsRejectUnknownKeys) {
  const TemporaryFolder folder;
  expect_refused({"describe", "--workload",
                  folder.write("w.yaml", "global_batch_samples: 8\nsequence_tokens: 64\nglobal_bach: 1\n")},
                 {"w.yaml: global_bach: is not a known field"});
  expect_refused({"describe", "--workload", folder.write("tab.yaml", "a:\n\t- b\n")},
                 {"tab.yaml", "not valid YAML", "line 2"});
  expect_refused({"describe", "--cluster", folder.write("c.json", "{\"nodes\": 1}")},
                 {"c.json: devices_per_node: is missing"});
}

TEST(Describe, NamesThatAreNotUtf8StillGiveValidJson) {
  const TemporaryFolder folder;
  const std::string good =
      R"({"model_type": "llama", "vocab_size": 10, "intermediate_size": 8, "num_hidden_layers": 1, "hidden_size": 8, "num_attention_heads": 2})";
  const std::filesystem::path named = folder.path() / "na\xffme";
  std::filesystem::create_directory(named);
  EXPECT_EQ(write_file(named / "config.json", good), std::nullopt);
  const ProgramRun run = wait_for(start_command(
      {"/bin/sh", "-c", R"(cd "$1" && exec "$0" describe --model . --json)", build_tree() / "weft", named},
      folder.path()));
  EXPECT_EQ(run.exit_status, 0) << run.err;
  EXPECT_EQ(Json::parse(run.out)["model"]["name"], "na\xef\xbf\xbdme");
  expect_refused({"describe", "--model", named}, {"is not UTF-8", "has to be renamed"});
}

TEST(Describe, AModelWhoseFileHasNoNameOfOneLineIsShownInOne) {
  const TemporaryFolder folder;
  const std::string config = *read_file(source_tree().string() + "/scenarios/models/llama3-8b.json", 1 << 20);
  const ProgramRun run = run_weft({"describe", "--model", folder.write("esc\x1b[31m\nX.json", config)});
  EXPECT_EQ(run.exit_status, 0) << run.err;
  EXPECT_EQ(run.out.find('\x1b'), std::string::npos);
  EXPECT_NE(run.out.find("esc\\x1b[31m\\x0aX"), std::string::npos) << run.out.substr(0, 400);
}

}  // namespace
}  // namespace weft
