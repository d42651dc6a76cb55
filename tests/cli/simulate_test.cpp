#include <functional>
#include <map>

#include <gtest/gtest.h>

#include "tests/cli/run_program.h"
#include "tests/support/source_tree.h"
#include "weft/base/document.h"
#include "weft/base/file.h"
#include "weft/plan/plan.h"

namespace weft::simulate_test {
namespace {

const std::string kPlans = source_tree().string() + "/scenarios/plans/";
const std::string kInline = kPlans + "qwen2-vl-7b_inline.json";
const std::string kPipeline = kPlans + "llama3-8b_gpipe_tp2_pp2_dp2.json";

/// A shipped plan with changes, whose cluster has the hash that it then needs.
std::string changed_plan(const TemporaryFolder& folder, const std::string& plan,
                         const std::function<void(Json&)>& change) {
  Json json = read_document(plan)->root;
  change(json);
  json["cluster"]["hash"] = hash_of(json["cluster"]["spec"]);
  return folder.write("plan.json", json.dump());
}

TEST(SimulateVerb, SaysWhereAClusterWasNotCalibratedAndWhatThatMeant) {
  const TemporaryFolder folder;
  const std::string bare =
      changed_plan(folder, kInline, [](Json& plan) { plan["cluster"]["spec"].erase("calibrated_to"); });
  const Json json = Json::parse(run_weft({"simulate", "--plan", bare, "--batches", "0", "--json"}).out);
  EXPECT_EQ(json["calibration"]["calibrated"], false);
  EXPECT_GT(json["calibration"]["default_mean_error_percent"].get<double>(), 0);
  const std::string remark = "(cluster not calibrated: defaults missed ";
  EXPECT_NE(run_weft({"simulate", "--plan", bare, "--batches", "0"}).out.find(remark), std::string::npos);
  const std::string fitted =
      changed_plan(folder, kInline, [](Json& plan) { plan["cluster"]["spec"]["calibrated_to"] = "two runs"; });
  const Json known = Json::parse(run_weft({"simulate", "--plan", fitted, "--batches", "0", "--json"}).out);
  EXPECT_EQ(known["calibration"], Json({{"calibrated", true}, {"to", "two runs"}}));
  EXPECT_EQ(run_weft({"simulate", "--plan", fitted, "--batches", "0"}).out.find(remark), std::string::npos);
}

TEST(SimulateVerb, PrintsOneJsonObjectWithTimesAndMemoryOfEveryRank) {
  const ProgramRun run = run_weft({"simulate", "--plan", kInline, "--batches", "2", "--json"});
  ASSERT_EQ(run.exit_status, 0) << run.err;
  const Json json = Json::parse(run.out);
  for (const char* key : {"step_time_ms", "bubble_fraction", "throughput_samples_per_s", "tokens_per_s_per_device",
                          "model_flops_utilization", "mean_batch_step_time_ms", "step_time_deviation_ms"}) {
    ASSERT_TRUE(json.contains(key)) << key;
    EXPECT_GT(json[key].get<double>(), 0) << key;
  }
  EXPECT_EQ(json["batches"], 2);
  EXPECT_EQ(json["fits"], true);
  EXPECT_EQ(json["warnings"], Json::array());
  ASSERT_EQ(json["ranks"].size(), 4u);
  ASSERT_EQ(json["peak_memory_gib"].size(), 4u);
  for (size_t rank = 0; rank < 4; ++rank) {
    const Json& row = json["ranks"][rank];
    double time = 0, memory = 0;
    for (const auto& [part, ms] : row["time"].items()) time += ms.get<double>();
    EXPECT_NEAR(time, json["mean_batch_step_time_ms"].get<double>(), 1e-3) << "parts add up to the mean batch's step";
    for (const auto& [part, gib] : row["memory"].items()) memory += part == "total_gib" ? 0 : gib.get<double>();
    EXPECT_NEAR(memory, row["memory"]["total_gib"].get<double>(), 1e-9);
    EXPECT_EQ(json["peak_memory_gib"][rank], row["memory"]["total_gib"]);
  }
  // 32 samples of 4096 tokens on 8 devices.
  const double seconds = json["step_time_ms"].get<double>() * 1e-3;
  EXPECT_NEAR(json["throughput_samples_per_s"].get<double>(), 32 / seconds, 1e-6);
  EXPECT_NEAR(json["tokens_per_s_per_device"].get<double>(), 32 * 4096 / seconds / 8, 1e-3);
}

TEST(SimulateVerb, PrintsATableAndASentenceOnMemory) {
  const ProgramRun run = run_weft({"simulate", "--plan", kPipeline});
  EXPECT_EQ(run.exit_status, 0) << run.err;
  EXPECT_EQ(run.err, "");
  for (const char* part : {"llama3-8b on 8 devices of hgx_h200, 32 samples a step\n", "\nms a step ", "\nGiB ",
                           "\nfits: pipeline rank 1 needs "}) {
    EXPECT_NE(run.out.find(part), std::string::npos) << "no '" << part << "' in " << run.out;
  }
}

TEST(SimulateVerb, WritesTraceAndPicture) {
  const TemporaryFolder folder;
  const std::string trace = folder.path() / "trace.json", svg = folder.path() / "step.svg";
  const ProgramRun run = run_weft({"simulate", "--plan", kPipeline, "--trace", trace, "--svg", svg, "--json"});
  EXPECT_EQ(run.exit_status, 0) << run.err;
  double end_us = 0;
  const Json events = Json::parse(*read_file(trace, 64u << 20))["traceEvents"];
  for (const Json& event : events) {
    if (event["ph"] == "X") end_us = std::max(end_us, event["ts"].get<double>() + event["dur"].get<double>());
  }
  EXPECT_NEAR(end_us * 1e-3, Json::parse(run.out)["step_time_ms"].get<double>(), 0.01);
  EXPECT_NE(read_file(svg, 64u << 20)->find("<svg"), std::string::npos);
}

TEST(SimulateVerb, SaysThatAPlanDoesNotFitAndCheckRefusesIt) {
  const TemporaryFolder folder;
  const std::string plan =
      changed_plan(folder, kPipeline, [](Json& json) { json["cluster"]["spec"]["device"]["memory_gib"] = 10.0; });
  const ProgramRun run = run_weft({"simulate", "--plan", plan});
  EXPECT_EQ(run.exit_status, 0) << run.err;
  EXPECT_NE(run.out.find("DOES NOT FIT: pipeline rank "), std::string::npos) << run.out;
  const ProgramRun check = run_weft({"check", "--plan", plan});
  EXPECT_EQ(check.exit_status, 2);
  EXPECT_EQ(check.out, "");
  EXPECT_NE(check.err.find("plan.json: memory: pipeline rank "), std::string::npos) << check.err;
  EXPECT_NE(check.err.find("more than the device's 10.00 GiB"), std::string::npos) << check.err;
}

TEST(SimulateVerb, UnusualUnitsAreWarnedOf) {
  const TemporaryFolder folder;
  const std::string plan = changed_plan(folder, kPipeline, [](Json& json) {
    json["cluster"]["spec"]["links"]["between_nodes"]["bandwidth_gb_per_s"] = 400.0;
  });
  const ProgramRun run = run_weft({"simulate", "--plan", plan});
  EXPECT_NE(run.out.find("warning: links.between_nodes.bandwidth_gb_per_s is 400 GB/s"), std::string::npos) << run.out;
}

TEST(SimulateVerb, UsesAProfileAndSaysWhatItLacks) {
  const TemporaryFolder folder;
  const Json plan = read_document(kPipeline)->root;
  const double forward_ms = 1000;
  Json profile = {{"weft_profile", 1},
                  {"device", plan["cluster"]["spec"]["device"]["name"]},
                  {"model", "llama3-8b"},
                  {"model_hash", plan["model"]["hash"]},
                  {"blocks",
                   {{{"module", "llm"},
                     {"block", "layer"},
                     {"tp", 2},
                     {"sequence_parallel", true},
                     {"tokens", 4096},
                     {"sequence_tokens", 4096},
                     {"forward_ms", forward_ms},
                     {"backward_input_ms", forward_ms},
                     {"backward_weight_ms", forward_ms}}}}};
  const ProgramRun run =
      run_weft({"simulate", "--plan", kPipeline, "--profile", folder.write("p.json", profile.dump()), "--json"});
  ASSERT_EQ(run.exit_status, 0) << run.err;
  const Json json = Json::parse(run.out);
  // 16 layers a stage, 3 s each for 16 microbatches, on the way through two stages.
  EXPECT_NEAR(json["step_time_ms"].get<double>(), 17 * 16 * 3000, 0.02 * 17 * 16 * 3000);
  // Embedding and head come from formulas, and times that are hundreds of times the formula's are doubted.
  ASSERT_EQ(json["warnings"].size(), 3u) << json["warnings"].dump();
  EXPECT_NE(json["warnings"][0].get<std::string>().find(
                "forward_ms of llm 'layer' at 4096 tokens, tp 2, sequence parallel, is"),
            std::string::npos)
      << json["warnings"].dump();
  std::map<std::string, std::string> from;
  for (const Json& block : json["profile"]["blocks"]) from[block["block"]] = block["from"];
  EXPECT_EQ(from,
            (std::map<std::string, std::string>{{"embedding", "formula"}, {"head", "formula"}, {"layer", "measured"}}));
  const ProgramRun text =
      run_weft({"simulate", "--plan", kPipeline, "--profile", folder.write("p.json", profile.dump())});
  EXPECT_NE(
      text.out.find("p.json: 1 of 3 blocks measured\n  from the formula, because the profile lacks them: llm "
                    "'embedding' at tp 2, sequence parallel; llm 'head' at tp 2, sequence parallel; 'weft profile "
                    "--for PLAN --out "),
      std::string::npos)
      << text.out;
  profile["device"] = "another";
  const ProgramRun other =
      run_weft({"simulate", "--plan", kPipeline, "--profile", folder.write("o.json", profile.dump())});
  EXPECT_EQ(other.exit_status, 2);
  EXPECT_NE(other.err.find("o.json: device: is 'another', but the cluster hgx_h200 has"), std::string::npos)
      << other.err;
}

TEST(SimulateVerb, WrongInputIsToldInOneLine) {
  const TemporaryFolder folder, another;
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"simulate"}, "--plan"},
      {{"simulate", "--plan", "/nowhere.json"}, "/nowhere.json"},
      {{"simulate", "--plan", kPipeline, "--batches", "-1"}, "--batches"},
      {{"simulate", "--plan", kPipeline, "--batches", "many"}, "--batches"},
      {{"simulate", "--batches", "10000", "--plan",
        changed_plan(another, kInline,
                     [](Json& j) {
                       Json& samples = j["workload"]["spec"]["global_batch_samples"];
                       samples = samples.get<int64_t>() * 1000;
                       j["schedule"]["mbs"] = j["schedule"]["mbs"].get<int64_t>() * 1000;
                       j["workload"]["hash"] = hash_of(j["workload"]["spec"]);
                     })},
       "--batches: makes 10000 batches of "},
      {{"simulate", "--plan", kPipeline, "--profile", folder.write("empty.json", "{}")}, "empty.json: weft_profile"},
      {{"simulate", "--plan",
        changed_plan(folder, kPipeline,
                     [](Json& j) {
                       j["offload"] = {{"optimizer", 0.5}};
                     })},
       "links.host: is missing, but the plan offloads to the host"},
  };
  for (const auto& [arguments, part] : cases) {
    const ProgramRun run = run_weft(arguments);
    EXPECT_EQ(run.exit_status, 2) << part;
    EXPECT_EQ(run.out, "") << part;
    EXPECT_NE(run.err.find(part), std::string::npos) << "no '" << part << "' in " << run.err;
    EXPECT_EQ(run.err.find('\n'), run.err.size() - 1) << "one line: " << run.err;
  }
}

TEST(SimulateVerb, NeverReplacesThePlanThatItReads) {
  const TemporaryFolder folder;
  const std::string text = *read_file(kPipeline, 1 << 20), plan = folder.write("plan.json", text);
  for (const char* flag : {"--trace", "--svg"}) {
    const ProgramRun run = run_weft({"simulate", "--plan", plan, flag, plan});
    EXPECT_EQ(run.exit_status, 2);
    EXPECT_NE(run.err.find(std::string(flag) + ": is "), std::string::npos) << run.err;
    EXPECT_NE(run.err.find("which --plan reads"), std::string::npos) << run.err;
  }
  EXPECT_EQ(*read_file(plan, 1 << 20), text);
}

}  // namespace
}  // namespace weft::simulate_test
