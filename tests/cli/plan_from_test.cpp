// `weft plan --from PLAN`: something better than a plan that is there.
#include <filesystem>

#include <gtest/gtest.h>

#include "tests/cli/run_program.h"
#include "weft/base/document.h"

namespace weft::plan_from_test {
namespace {

class PlanFrom : public testing::Test {
 protected:
  /// A plan of Llama-3 8B on one node, searched with more options.
  std::string planned(const std::string& name, const std::vector<std::string>& more) {
    std::vector<std::string> command = {"plan",       "--model", "llama3-8b", "--cluster", "dgx_h100",
                                        "--workload", "text_4k", "--out",     path(name)};
    command.insert(command.end(), more.begin(), more.end());
    const ProgramRun run = run_weft(command);
    EXPECT_EQ(run.exit_status, 0) << run.err;
    return path(name);
  }

  Json better_than(const std::string& plan, std::vector<std::string> more) {
    more.insert(more.begin(), {"plan", "--from", plan, "--json"});
    const ProgramRun run = run_weft(more);
    EXPECT_EQ(run.exit_status, 0) << run.err;
    return Json::parse(run.out);
  }

  static double step_ms(const std::string& plan) {
    return read_document(plan)->root["predicted"]["step_time_ms"].get<double>();
  }

  std::string path(const std::string& name) const { return (folder_.path() / name).string(); }

  TemporaryFolder folder_;
};

TEST_F(PlanFrom, TheSearchIsThatOfTheOptions) {
  const std::string fast = planned("fast.json", {"--fastest"});
  const std::string slow = planned("slow.json", {"--space", folder_.write("slow.yaml", "llm: {tp: 4, pp: 2}\n")});
  ASSERT_GT(step_ms(slow), 1.02 * step_ms(fast));
  const Json found = better_than(slow, {"--fastest"});
  EXPECT_TRUE(found["is_better"]);
  EXPECT_NEAR(found["found_step_time_ms"].get<double>(), step_ms(fast), 1e-6 * step_ms(fast));
  EXPECT_NEAR(found["step_time_ms"].get<double>(), step_ms(slow), 1e-6 * step_ms(slow));
  // Of a space that has only such plans, the plan at hand is the best.
  const std::string pinned = folder_.write("pinned.yaml", "llm: {tp: 4, pp: 2}\n");
  const Json same = better_than(slow, {"--space", pinned});
  EXPECT_FALSE(same["is_better"]);
  EXPECT_EQ(same["plan"]["modules"]["llm"]["tp"], 4);
}

TEST_F(PlanFrom, WhatIsNoFasterIsNoAnswer) {
  const std::string fast = planned("fast.json", {"--fastest"});
  const Json found = better_than(fast, {"--out", path("out.json")});
  EXPECT_FALSE(found["is_better"]);
  EXPECT_EQ(found["plan"]["modules"], read_document(fast)->root["modules"]);
  EXPECT_EQ(read_document(path("out.json"))->root["modules"], read_document(fast)->root["modules"]);
}

TEST_F(PlanFrom, APlanWithoutSettingsIsNoAnswerForASystem) {
  const std::string plan =
      planned("plan.json", {"--space", folder_.write("space.yaml", "llm: {zero: 3, tp: 1, pp: 1}\n")});
  ASSERT_EQ(run_weft({"export", "--plan", plan, "--to", "mindspeed-mm"}).exit_status, 2);
  const Json found = better_than(plan, {"--for", "mindspeed-mm", "--out", path("out.json")});
  EXPECT_FALSE(found["has_settings"]);
  EXPECT_TRUE(found["is_better"]);
  EXPECT_EQ(run_weft({"export", "--plan", path("out.json"), "--to", "mindspeed-mm"}).exit_status, 0);
}

TEST_F(PlanFrom, OptionsThatMeanNothingThereAreRefused) {
  const std::string plan = planned("plan.json", {});
  for (const std::vector<std::string>& more : std::vector<std::vector<std::string>>{{"--profile", "none.json"},
                                                                                    {"--top", "3"},
                                                                                    {"--explain"},
                                                                                    {"--nodes", "2"},
                                                                                    {"--devices-per-node", "4"},
                                                                                    {"--global-batch", "8"},
                                                                                    {"--adapters", "none.yaml"},
                                                                                    {"--strategy", "none.yaml"},
                                                                                    {"--model", "llama3-8b"}}) {
    std::vector<std::string> command = {"plan", "--from", plan};
    command.insert(command.end(), more.begin(), more.end());
    const ProgramRun run = run_weft(command);
    EXPECT_EQ(run.exit_status, 2) << more[0];
    EXPECT_NE(run.err.find("--from: is given together with"), std::string::npos) << run.err;
    EXPECT_NE(run.err.find(more[0]), std::string::npos) << run.err;
  }
  EXPECT_EQ(run_weft({"plan", "--from", plan, "--space", "none.yaml"}).exit_status, 2);
}

}  // namespace
}  // namespace weft::plan_from_test
