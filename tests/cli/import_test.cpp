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

}  // namespace
}  // namespace weft
