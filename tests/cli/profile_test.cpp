#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/cli/run_program.h"
#include "tests/support/source_tree.h"
#include "weft/base/json.h"

namespace weft::profile_test {
namespace {

constexpr const char* kWorkload = R"(global_batch_samples: 4
text_tokens: 32
images_per_sample: 1
patches_per_image: 64
precision: fp32
optimizer: adamw
)";

constexpr const char* kSpace = R"(mbs: 1
llm: {tp: [1, 2], pp: 1, cp: 1, dp: [1, 2]}
vision: {placement: inline}
schedule: [1f1b]
)";

/// What one test measures, on ranks as few as machines have cores.
class ProfileVerb : public testing::Test {
 protected:
  std::string file(const std::string& name) const { return (folder_.path() / name).string(); }
  std::vector<std::string> command(std::vector<std::string> more) const {
    std::vector<std::string> words = {"profile", "--model", "tiny-vl",      "--workload", workload_, "--space",
                                      space_,    "--out",   file("p.json"), "--ranks",    "2"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  ProgramRun profile(std::vector<std::string> more = {}) const { return run_weft(command(std::move(more))); }
  /// Goes on until nothing is missing: a machine may be slow.
  Json profile_whole(std::vector<std::string> more = {}) const {
    more.insert(more.end(), {"--json", "--time-limit", "15"});
    Json said;
    for (int i = 0; i < 40; ++i) {
      const ProgramRun run = profile(more);
      EXPECT_EQ(run.exit_status, 0) << run.err;
      if (run.exit_status != 0) break;
      said = Json::parse(run.out);
      if (said["left"] == 0) break;
    }
    return said;
  }
  Json read(const std::string& name) const {
    std::ifstream text(folder_.path() / name);
    return Json::parse(text);
  }

  TemporaryFolder folder_;
  std::string workload_ = folder_.write("w.yaml", kWorkload);
  std::string space_ = folder_.write("s.yaml", kSpace);
};

TEST_F(ProfileVerb, MeasuresBlocksUpdatesLinksAndTheMachineThatAPlanIsThenMadeFor) {
  const Json said = profile_whole({"--cluster-out", file("here.yaml")}), written = read("p.json");
  ASSERT_EQ(said["left"], 0) << said;
  EXPECT_EQ(said["blocks"], written["blocks"].size());
  std::set<std::pair<std::string, std::string>> blocks;
  for (const Json& block : written["blocks"]) {
    blocks.emplace(block["module"], block["block"]);
    EXPECT_GT(block["forward_ms"].get<double>(), 0);
    EXPECT_GT(block["runs"].get<int>(), 0);
    EXPECT_EQ(block["busy_ranks"], 2);
  }
  const std::set<std::pair<std::string, std::string>> all = {
      {"vision", "patch embedding"}, {"vision", "layer"}, {"vision", "merger"},
      {"llm", "embedding"},          {"llm", "layer"},    {"llm", "head"}};
  EXPECT_EQ(blocks, all);
  EXPECT_FALSE(written["updates"].empty());
  std::set<std::string> collectives;
  for (const Json& link : written["links"]) collectives.insert(link["collective"]);
  EXPECT_EQ(collectives, (std::set<std::string>{"all_gather", "all_reduce", "all_to_all", "reduce_scatter", "send"}));
  EXPECT_TRUE(written["software"].get<std::string>().find("LibTorch") != std::string::npos);

  const ProgramRun plan =
      run_weft({"plan", "--model", "tiny-vl", "--workload", workload_, "--cluster", file("here.yaml"), "--space",
                space_, "--profile", file("p.json"), "--out", file("plan.json")});
  EXPECT_EQ(plan.exit_status, 0) << plan.err;
}

TEST_F(ProfileVerb, GoesOnWhereItWasInterrupted) {
  std::vector<std::string> words = command({});
  words.insert(words.begin(), (build_tree() / "weft").string());
  const StartedProgram started = start_command(words, folder_.path());
  // Interrupted as soon as something was kept: links come first.
  for (int i = 0; i < 1200 && !std::filesystem::exists(file("p.json")); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  kill(started.process, SIGINT);
  const ProgramRun first = wait_for(started);
  const Json kept = read("p.json");
  if (first.exit_status != 0) {  // a fast machine was done before
    EXPECT_EQ(first.exit_status, 130) << first.err;
    EXPECT_NE(first.err.find("Run the same command again"), std::string::npos) << first.err;
  }
  const Json said = profile_whole();
  const Json whole = read("p.json");
  EXPECT_EQ(whole["links"], kept["links"]) << "what was measured is not measured again";
  EXPECT_GE(whole["blocks"].size(), kept["blocks"].size());
  EXPECT_EQ(said["left"], 0) << said;
}

TEST_F(ProfileVerb, RefusesToGoOnWithAProfileOfSomethingElse) {
  ASSERT_EQ(profile({"--time-limit", "1"}).exit_status, 0);
  for (const char* field : {"device", "software", "model_hash"}) {
    Json other = read("p.json");
    const Json right = other[field];
    other[field] = "another";
    std::ofstream(file("p.json")) << other;
    const ProgramRun run = profile();
    EXPECT_EQ(run.exit_status, 2);
    EXPECT_NE(run.err.find(fmt::format("p.json: {}: is '", field)), std::string::npos) << run.err;
    EXPECT_NE(run.err.find("another', but '"), std::string::npos) << run.err;
    EXPECT_NE(run.err.find("Give another --out"), std::string::npos) << run.err;
    other[field] = right;
    std::ofstream(file("p.json")) << other;
  }
  const ProgramRun run = profile({"--precision", "bf16"});
  EXPECT_EQ(run.exit_status, 2);
  EXPECT_NE(run.err.find("precision: is 'fp32', but 'bf16' would be measured now"), std::string::npos) << run.err;
}

TEST_F(ProfileVerb, NamesOptionsThatDoNotGoTogether) {
  const auto refusal = [&](std::vector<std::string> words) {
    words.insert(words.begin(), "profile");
    const ProgramRun run = run_weft(words);
    EXPECT_EQ(run.exit_status, 2);
    return run.err;
  };
  EXPECT_NE(refusal({"--out", file("p.json")}).find("--model: is missing"), std::string::npos);
  EXPECT_NE(refusal({"--out", file("p.json"), "--model", "tiny-vl", "--workload", workload_, "--precision", "int8"})
                .find("--precision: is 'int8'"),
            std::string::npos);
  const std::string plan = (source_tree() / "scenarios/plans/tiny-vl_one_rank.json").string();
  EXPECT_NE(refusal({"--out", file("p.json"), "--for", plan, "--model", "llama3-8b"})
                .find("--model: is llama3-8b, but the plan of --for is of tiny-vl"),
            std::string::npos);
  EXPECT_NE(
      refusal({"--out", file("p.json"), "--for", plan, "--space", plan}).find("--space: is given together with --for"),
      std::string::npos);
  EXPECT_NE(refusal({"--out", file("p.json"), "--for", plan, "--device", "tpu"}).find("is 'tpu'"), std::string::npos);
}

}  // namespace
}  // namespace weft::profile_test
