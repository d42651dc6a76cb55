#include <algorithm>

#include <gtest/gtest.h>

#include "tests/cli/run_program.h"
#include "tests/support/source_tree.h"
#include "weft/base/document.h"
#include "weft/base/file.h"

namespace weft {
namespace {

const std::string kPlans = source_tree().string() + "/scenarios/plans/";
const std::string kInterleaved = kPlans + "llama3-70b_interleaved_tp8_pp4_vpp5.json";

std::string text_of(const std::filesystem::path& path) {
  return *read_file(path, 1u << 20);
}

/// The one shipped plan with a colocated encoder, without what MindSpeed-MM does not have.
std::string colocated_plan(const TemporaryFolder& folder) {
  Json plan = read_document(kPlans + "qwen2-vl-7b_colocated_before.json")->root;
  plan["modules"]["vision"]["recompute_from_inputs"] = false;
  return folder.write("colocated.json", plan.dump());
}

TEST(ExportVerb, PrintsASingleFileAsItIs) {
  const ProgramRun run = run_weft({"export", "--plan", kInterleaved, "--to", "megatron"});
  EXPECT_EQ(run.exit_status, 0) << run.err;
  EXPECT_EQ(run.out.substr(0, 32), "--tensor-model-parallel-size 8 -");
  EXPECT_EQ(std::count(run.out.begin(), run.out.end(), '\n'), 1);
  const ProgramRun yaml = run_weft({"export", "--plan", kInterleaved, "--to", "mindformers"});
  EXPECT_EQ(yaml.out.substr(0, 17), "parallel_config:\n") << yaml.err;
}

TEST(ExportVerb, PrintsSeveralFilesBelowTheirNames) {
  const TemporaryFolder folder;
  const ProgramRun run = run_weft({"export", "--plan", colocated_plan(folder), "--to", "mindspeed-mm"});
  EXPECT_EQ(run.exit_status, 0) << run.err;
  EXPECT_EQ(run.out.substr(0, 15), "# model.json\n{\n");
  EXPECT_NE(run.out.find("}\n# mindspeed_mm_args.txt\n--hetero-parallel "), std::string::npos) << run.out;
}

TEST(ExportVerb, PrintsOneJsonObject) {
  const TemporaryFolder folder;
  const ProgramRun run = run_weft({"export", "--plan", colocated_plan(folder), "--to", "mindspeed-mm", "--json"});
  const Json json = Json::parse(run.out);
  EXPECT_EQ(json["target"], "mindspeed-mm");
  ASSERT_EQ(json["files"].size(), 2u);
  EXPECT_EQ(json["files"][0]["name"], "model.json");
  EXPECT_EQ(Json::parse(json["files"][0]["text"].get<std::string>())["text_decoder"]["pp"], 4);
}

TEST(ExportVerb, PrintsAMindspeedSearchResultThatParses) {
  const TemporaryFolder folder;
  Json plan = read_document(kPlans + "qwen2-vl-7b_inline.json")->root;
  plan["predicted"]["step_time_ms"] = 2000;
  plan["predicted"]["throughput_samples_per_s"] = 16;
  const ProgramRun run = run_weft({"export", "--plan", folder.write("plan.json", plan.dump()), "--to", "mindspeed-mm"});
  EXPECT_EQ(run.exit_status, 0) << run.err;
  const Json json = Json::parse(run.out);
  EXPECT_EQ(json["layer_placement"]["llm_layer_placement"], Json::parse("[4, 8, 8, 8]"));
  EXPECT_EQ(json["throughput"], 16 * 4096 / 8);
}

TEST(ExportVerb, WritesAFileOrIntoAFolder) {
  const TemporaryFolder folder;
  const std::string file = folder.path() / "line.txt";
  const ProgramRun one = run_weft({"export", "--plan", kInterleaved, "--to", "megatron", "--out", file});
  EXPECT_EQ(one.exit_status, 0) << one.err;
  EXPECT_EQ(one.out, "wrote " + file + "\n");
  EXPECT_EQ(text_of(file), run_weft({"export", "--plan", kInterleaved, "--to", "megatron"}).out);

  run_weft({"export", "--plan", kInterleaved, "--to", "megatron", "--out", folder.path()});
  EXPECT_EQ(text_of(folder.path() / "megatron_args.txt"), text_of(file));

  const std::string plan = colocated_plan(folder);
  const ProgramRun two =
      run_weft({"export", "--plan", plan, "--to", "mindspeed-mm", "--out", folder.path() / "a" / "b"});
  EXPECT_EQ(two.exit_status, 0) << two.err;
  EXPECT_EQ(text_of(folder.path() / "a/b/mindspeed_mm_args.txt").substr(0, 18), "--hetero-parallel ");

  const ProgramRun blocked = run_weft({"export", "--plan", plan, "--to", "mindspeed-mm", "--out", file});
  EXPECT_EQ(blocked.exit_status, 2);
  EXPECT_NE(blocked.err.find("--out: "), std::string::npos) << blocked.err;
}

TEST(ExportVerb, RefusesWithTheFieldAndWritesNothing) {
  const TemporaryFolder folder;
  const std::string out = folder.path() / "line.txt";
  const ProgramRun run =
      run_weft({"export", "--plan", kPlans + "qwen3-8b_zb_v_pp4.json", "--to", "megatron", "--out", out, "--json"});
  EXPECT_EQ(run.exit_status, 2);
  EXPECT_EQ(run.out, "");
  EXPECT_NE(run.err.find("qwen3-8b_zb_v_pp4.json: schedule.name: is zb_v, but Megatron-LM runs 1f1b"),
            std::string::npos)
      << run.err;
  EXPECT_FALSE(std::filesystem::exists(out));
}

TEST(ExportVerb, RefusesAnIllegalPlanAsCheckDoes) {
  const TemporaryFolder folder;
  Json plan = read_document(kInterleaved)->root;
  plan["modules"]["llm"]["tp"] = 4;
  plan["schedule"]["mbs"] = 3;
  const std::string path = folder.write("illegal.json", plan.dump());
  const ProgramRun run = run_weft({"export", "--plan", path, "--to", "megatron"});
  const ProgramRun check = run_weft({"check", "--plan", path});
  EXPECT_EQ(run.exit_status, check.exit_status);
  EXPECT_EQ(run.err, check.err);
}

TEST(ExportVerb, NamesTheSystemsThatItKnows) {
  const ProgramRun run = run_weft({"export", "--plan", kInterleaved, "--to", "megatrn"});
  EXPECT_EQ(run.exit_status, 2);
  EXPECT_NE(run.err.find("--to: 'megatrn' is not a system that plans are exported to. Known are megatron, "
                         "mindspeed-mm, mindformers, mindspeed-rl or torchtitan. Did you mean 'megatron'?"),
            std::string::npos)
      << run.err;
  EXPECT_EQ(run_weft({"export", "--plan", kInterleaved}).exit_status, 2);
  EXPECT_EQ(run_weft({"export", "--to", "megatron"}).exit_status, 2);
}

}  // namespace
}  // namespace weft
