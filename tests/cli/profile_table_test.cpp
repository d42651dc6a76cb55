#include <gtest/gtest.h>

#include "tests/cli/run_program.h"
#include "tests/support/source_tree.h"
#include "weft/base/document.h"

namespace weft::profile_table_test {
namespace {

const std::string kHeader =
    "module,block,tp,sequence_parallel,tokens,sequence_tokens,forward_ms,backward_input_ms,backward_weight_ms,link,"
    "collective,ranks,bytes,ms\n";

TEST(ProfileVerb, ATableOfOnesOwnBecomesAProfileThatPlansArePricedWith) {
  const TemporaryFolder folder;
  const std::string plan = source_tree().string() + "/scenarios/plans/llama3-8b_gpipe_tp2_pp2_dp2.json";
  const std::string device = read_document(plan)->root["cluster"]["spec"]["device"]["name"];
  const std::string table = folder.write(
      "t.csv", kHeader + "llm,layer,2,true,4096,4096,10,20,30,,,,,\n" + ",,,,,,,,,within_node,all_gather,8,1e8,1.0\n");
  const std::string out = (folder.path() / "p.json").string();
  const std::vector<std::string> command = {"profile",       "--from", table,   "--model", "llama3-8b",
                                            "--device-name", device,   "--out", out};
  const ProgramRun made = run_weft(command);
  ASSERT_EQ(made.exit_status, 0) << made.err;
  EXPECT_EQ(made.out, "1 block measurement, 1 link measurement and 0 updates of llama3-8b on " + device +
                          " written to " + out +
                          "\nnot in the table, so formulas price them: llm 'embedding', llm 'head'\n");
  const ProgramRun simulated = run_weft({"simulate", "--plan", plan, "--profile", out, "--json"});
  ASSERT_EQ(simulated.exit_status, 0) << simulated.err;
  const Json json = Json::parse(simulated.out);
  // 16 layers a stage, 60 ms each for 16 microbatches, on the way through two stages.
  EXPECT_NEAR(json["step_time_ms"].get<double>(), 17 * 16 * 60, 0.1 * 17 * 16 * 60);
  EXPECT_EQ(json["profile"]["links"].size(), 1u);
}

TEST(ProfileVerb, ATableThatIsWrongIsToldInOneLine) {
  const TemporaryFolder folder;
  const std::string good = folder.write("g.csv", kHeader + "llm,layer,1,,64,64,1,1,1,,,,,\n");
  const std::string out = (folder.path() / "p.json").string();
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"--from", good, "--model", "llama3-8b"}, "--device-name: is missing"},
      {{"--from", good, "--device-name", "x"}, "--model: is missing"},
      {{"--from", "/nowhere.csv", "--model", "llama3-8b", "--device-name", "x"}, "/nowhere.csv"},
      {{"--from", good, "--model", "llama3-8b", "--device-name", "x", "--precision", "int3"}, "--precision: is 'int3'"},
      {{"--from", folder.write("b.csv", kHeader + "llm,adapter,1,,64,64,1,1,1,,,,,\n"), "--model", "llama3-8b",
        "--device-name", "x"},
       "block: has 'adapter' of llm, which llama3-8b does not have. Its blocks are llm 'embedding', llm 'layer' or llm "
       "'head'"},
      {{"--from", folder.write("c.csv", kHeader + "llm,layer,1,maybe,64,64,1,1,1,,,,,\n"), "--model", "llama3-8b",
        "--device-name", "x"},
       "c.csv: line 2, sequence_parallel: is 'maybe', true or false is needed"},
  };
  for (const auto& [words, message] : cases) {
    std::vector<std::string> command = {"profile", "--out", out};
    command.insert(command.end(), words.begin(), words.end());
    const ProgramRun run = run_weft(command);
    EXPECT_EQ(run.exit_status, 2) << message;
    EXPECT_NE(run.err.find(message), std::string::npos) << run.err;
  }
}

}  // namespace
}  // namespace weft::profile_table_test
