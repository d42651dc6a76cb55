#include <filesystem>

#include <gtest/gtest.h>

#include "tests/cli/run_program.h"
#include "tests/support/source_tree.h"
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
  EXPECT_EQ(found["gap"], 0.0);
  EXPECT_EQ(found["optimal"], true);
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
  Json cluster = read_document(source_tree().string() + "/scenarios/clusters/dgx_a100_80g.yaml")->root;
  cluster["devices_per_node"] = 1;
  cluster["device"]["memory_gib"] = 16;
  const ProgramRun small = run_weft({"plan", "--model", "qwen2-vl-72b", "--cluster",
                                     folder.write("small.json", cluster.dump()), "--workload", "vl_sft"});
  EXPECT_EQ(small.exit_status, 1);
  EXPECT_NE(small.err.find("candidates fits in 16 GiB a device"), std::string::npos) << small.err;
  EXPECT_NE(small.err.find("GiB a device this fits: "), std::string::npos) << small.err;
  const ProgramRun odd = run_weft({"plan", "--model", "llama3-8b", "--cluster", "dgx_h100", "--workload", "text_4k",
                                   "--space", folder.write("pins.yaml", "llm: {tp: 3}\n")});
  EXPECT_EQ(odd.exit_status, 1);
  EXPECT_NE(odd.err.find("Without llm.tp there would be candidates"), std::string::npos) << odd.err;
  const ProgramRun bad =
      run_weft({"plan", "--model", "llama3-8b", "--cluster", "dgx_h100", "--workload", "text_4k", "--top", "0"});
  EXPECT_EQ(bad.exit_status, 2);
  EXPECT_NE(bad.err.find("--top"), std::string::npos) << bad.err;
}

TEST(PlanVerb, ExplainsDrawsBatchesAndFormats) {
  const TemporaryFolder folder;
  const std::string space = folder.write("space.yaml", kSpace);
  const std::vector<std::string> common = {"plan",     "--model",    "qwen2-vl-7b", "--cluster",
                                           "dgx_h100", "--workload", "vl_sft",      "--global-batch",
                                           "64",       "--space",    space};
  const auto run = [&](std::vector<std::string> more) {
    more.insert(more.begin(), common.begin(), common.end());
    return run_weft(more);
  };
  const ProgramRun explained = run({"--explain", "--json"});
  ASSERT_EQ(explained.exit_status, 0) << explained.err;
  const Json explanation = Json::parse(explained.out)["explanation"];
  EXPECT_GE(explanation["alternatives"].size(), 5u);
  for (const Json& alternative : explanation["alternatives"]) {
    EXPECT_FALSE(alternative["reason"].get<std::string>().empty());
    if (alternative["fits"].get<bool>()) {
      // What differs by less than a quarter of a percent on drawn batches is not told apart.
      EXPECT_GE(alternative["slower_by"], -0.0025) << alternative["name"];
    }
  }
  EXPECT_EQ(explanation["what_ifs"].size(), 3u);
  EXPECT_NE(run({"--explain"}).out.find("Why not\n"), std::string::npos);

  const std::string out = (folder.path() / "plan.json").string();
  const ProgramRun drawn = run({"--batches", "3", "--out", out, "--json"});
  ASSERT_EQ(drawn.exit_status, 0) << drawn.err;
  EXPECT_EQ(Json::parse(drawn.out)["batches"], 3);
  EXPECT_GE(Json::parse(drawn.out)["num_drawn"], 1);
  EXPECT_LE(Json::parse(drawn.out)["spread"]["shortest_ms"], Json::parse(drawn.out)["spread"]["p90_ms"]);
  const ProgramRun mean = run({"--batches", "0", "--json"});
  EXPECT_EQ(Json::parse(mean.out)["batches"], 0);
  EXPECT_FALSE(Json::parse(mean.out).contains("spread"));
  EXPECT_EQ(Json::parse(run_weft({"simulate", "--plan", out, "--json"}).out)["step_time_ms"],
            Json::parse(drawn.out)["step_time_ms"]);

  const ProgramRun refused = run({"--format", "mindspeed-mm"});
  EXPECT_EQ(refused.exit_status, 1);
  EXPECT_NE(refused.err.find("modules.llm.zero: is 3"), std::string::npos) << refused.err;
  const ProgramRun formatted = run_weft({"plan", "--model", "qwen2-vl-7b", "--cluster", "dgx_h100", "--workload",
                                         "vl_sft", "--global-batch", "64", "--format", "mindspeed-mm", "--space",
                                         folder.write("zero1.yaml",
                                                      "schedule: [1f1b]\nllm: {cp: 1, zero: 1}\n"
                                                      "recompute: [full]\nencoders: {placement: [inline]}\n")});
  ASSERT_EQ(formatted.exit_status, 0) << formatted.err;
  EXPECT_TRUE(Json::parse(formatted.out).contains("parallel_config")) << formatted.out;
  const ProgramRun unknown = run({"--format", "deepspeed"});
  EXPECT_EQ(unknown.exit_status, 2);
  EXPECT_NE(unknown.err.find("--format"), std::string::npos) << unknown.err;
}

}  // namespace
}  // namespace weft
