#include <filesystem>

#include <gtest/gtest.h>

#include "tests/cli/run_program.h"
#include "weft/base/document.h"

namespace weft {
namespace {

const std::string kSpace = "schedule: [1f1b]\nllm: {cp: 1}\nencoders: {placement: [inline]}\n";

TEST(PlanVerb, FindsAPlanThatCheckAndSimulateAgreeWith) {
  const TemporaryFolder folder;
  const std::string space = folder.write("space.yaml", kSpace);
  const std::string out = (folder.path() / "plan.json").string();
  const ProgramRun run = run_weft({"plan", "--model", "qwen2-vl-7b", "--cluster", "dgx_h100", "--workload", "vl_sft",
                                   "--global-batch", "64", "--space", space, "--out", out, "--json"});
  ASSERT_EQ(run.exit_status, 0) << run.err;
  const Json found = Json::parse(run.out);
  const Json counts = found["counts"];
  EXPECT_EQ(found["space_size"], counts["considered"]);
  EXPECT_GT(counts["slower_by_work"], 0);
  EXPECT_GE(found["gap"], 0.0);
  EXPECT_EQ(run_weft({"check", "--plan", out}).exit_status, 0);
  const ProgramRun simulated = run_weft({"simulate", "--plan", out, "--json"});
  ASSERT_EQ(simulated.exit_status, 0) << simulated.err;
  EXPECT_EQ(Json::parse(simulated.out)["step_time_ms"], found["step_time_ms"]);
  EXPECT_EQ(read_document(out)->root["predicted"]["step_time_ms"], found["step_time_ms"]);
  const ProgramRun again = run_weft({"plan", "--model", "qwen2-vl-7b", "--cluster", "dgx_h100", "--workload", "vl_sft",
                                     "--global-batch", "64", "--space", space, "--json"});
  EXPECT_EQ(again.out, run.out) << "same inputs, same plan";
}

TEST(PlanVerb, SaysWhatIsMissingWhereNothingFits) {
  const TemporaryFolder folder;
  Json cluster = read_document(std::string(WEFT_SOURCE_DIR) + "/scenarios/clusters/dgx_a100_80g.yaml")->root;
  cluster["devices_per_node"] = 1;
  cluster["device"]["memory_gib"] = 16;
  const ProgramRun small = run_weft({"plan", "--model", "qwen2-vl-72b", "--cluster",
                                     folder.write("small.json", cluster.dump()), "--workload", "vl_sft"});
  EXPECT_EQ(small.exit_status, 1);
  EXPECT_NE(small.err.find("candidates fits in 16 GiB a device"), std::string::npos) << small.err;
  const ProgramRun odd = run_weft({"plan", "--model", "llama3-8b", "--cluster", "dgx_h100", "--workload", "text_4k",
                                   "--space", folder.write("pins.yaml", "llm: {tp: 3}\n")});
  EXPECT_EQ(odd.exit_status, 1);
  EXPECT_NE(odd.err.find("no settings divide 8 devices"), std::string::npos) << odd.err;
  const ProgramRun bad =
      run_weft({"plan", "--model", "llama3-8b", "--cluster", "dgx_h100", "--workload", "text_4k", "--top", "0"});
  EXPECT_EQ(bad.exit_status, 2);
  EXPECT_NE(bad.err.find("--top"), std::string::npos) << bad.err;
}

}  // namespace
}  // namespace weft
