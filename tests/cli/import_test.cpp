#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "tests/cli/run_program.h"
#include "tests/support/source_tree.h"
#include "weft/base/json.h"

namespace weft {
namespace {

std::string script() {
  return (source_tree() / "docs/manual/megatron_train.sh").string();
}

TEST(Import, WritesAPlanThatIsPricedAlike) {
  const std::string folder = testing::TempDir() + "/weft_import";
  std::filesystem::create_directories(folder);
  const ProgramRun run = run_weft({"import", "--from", "megatron", script(), "--out", folder + "/plan.json",
                                   "--config-out", folder + "/train.yaml", "--json"});
  ASSERT_EQ(run.exit_status, 0) << run.err;
  const Json json = Json::parse(run.out);
  EXPECT_EQ(json["plan"]["modules"]["llm"]["tp"], 4);
  EXPECT_EQ(json["config"]["steps"], 1000);
  const ProgramRun simulated = run_weft({"simulate", "--plan", folder + "/plan.json", "--json"});
  ASSERT_EQ(simulated.exit_status, 0) << simulated.err;
  EXPECT_EQ(Json::parse(simulated.out)["step_time_ms"], json["step_time_ms"]);
  std::ifstream config(folder + "/train.yaml");
  std::string first;
  std::getline(config, first);
  EXPECT_EQ(first, "steps: 1000");
}

TEST(Import, AdvisesChangeByChange) {
  const ProgramRun run = run_weft({"import", "--from", "megatron", script(), "--advise", "--json"});
  ASSERT_EQ(run.exit_status, 0) << run.err;
  const Json json = Json::parse(run.out);
  ASSERT_TRUE(json["is_better"]);
  double saved_ms = 0;
  for (const Json& change : json["changes"]) {
    double parts_ms = 0;
    for (const auto& [part, ms] : change["parts_ms"].items()) parts_ms += ms.get<double>();
    EXPECT_NEAR(parts_ms, change["saved_ms"].get<double>(), 1e-6) << change;
    saved_ms += change["saved_ms"].get<double>();
  }
  EXPECT_NEAR(saved_ms, json["step_time_ms"].get<double>() - json["found_step_time_ms"].get<double>(), 1e-6);
  EXPECT_FALSE(json["settings"].empty());
}

TEST(Import, RefusesWhatIsNoSystemOrNoFile) {
  const auto refused = [](std::vector<std::string> arguments, const std::string& part) {
    arguments.insert(arguments.begin(), "import");
    const ProgramRun run = run_weft(arguments);
    EXPECT_EQ(run.exit_status, 2) << part;
    EXPECT_NE(run.err.find(part), std::string::npos) << run.err;
  };
  refused({"--from", "megatronn", script()}, "Did you mean 'megatron'?");
  refused({"--from", "torchtitan", script()}, "'torchtitan' is not a system whose settings are read");
  refused({"--from", "megatron"}, "but no files of it");
  refused({"--from", "megatron", "nowhere.sh"}, "nowhere.sh");
  refused({"--from", "megatron", "/dev/zero"}, "/dev/zero");
  refused({"--from", "megatron", script(), "--set", "TP"}, "NAME=VALUE is needed");
  refused({"--from", "megatron", script(), "--set", "TP=3"}, "does not divide the 8 devices");
  refused({"--from", "megatron", script(), "--system-version", "9"}, "whose defaults are not known");
}

TEST(Import, NamesThatAreNotUtf8AreRefusedBeforeAnythingIsRead) {
  const std::string folder = testing::TempDir() + "/weft_import_names";
  std::filesystem::create_directories(folder);
  const std::string name = folder + "/d\xff.json";
  std::ofstream(name) << "{}";
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {"import", "--from", "mindspeed-mm", name, "--model", "llama3-8b", "--config-out", folder + "/c.yaml"},
           {"plan", "--model", "m\xff", "--cluster", "dgx_h100", "--workload", "text_sft"},
           {"describe", "--cluster", folder + "/\xff.yaml"}}) {
    const ProgramRun run = run_weft(words);
    EXPECT_EQ(run.exit_status, 2) << run.err;
    EXPECT_NE(run.err.find("is not UTF-8: its byte"), std::string::npos) << run.err;
    EXPECT_EQ(run.err.find("internal error"), std::string::npos) << run.err;
  }
}

TEST(Import, ListsNothingThatSpeaksToTheTerminal) {
  const std::string folder = testing::TempDir() + "/weft_import_escapes";
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/esc.sh") << "torchrun x.py --micro-batch-size 1 '--a\033[31m\nfake: line' 1 '--b\a' 2\n";
  const auto controls = [](const std::string& text) {
    return std::count_if(text.begin(), text.end(), [](char c) { return c == '\033' || c == '\a'; });
  };
  for (const bool is_lenient : {false, true}) {
    std::vector<std::string> words = {"import", "--from", "megatron", folder + "/esc.sh", "--model", "llama3-8b"};
    if (is_lenient) words.emplace_back("--lenient");
    const ProgramRun run = run_weft(words);
    EXPECT_EQ(run.exit_status, is_lenient ? 0 : 2) << run.err;
    EXPECT_EQ(controls(run.out + run.err), 0) << run.out << run.err;
    EXPECT_EQ((run.out + run.err).find("\nfake: line"), std::string::npos) << run.out << run.err;
  }
}

}  // namespace
}  // namespace weft
