#include <filesystem>
#include <tuple>

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

TEST(PlanVerb, PlansForManyDevicesWithAProfileOfOne) {
  const TemporaryFolder folder;
  const std::string space = folder.write("space.yaml", kSpace);
  const std::string cluster_file = source_tree().string() + "/scenarios/clusters/dgx_h100.yaml";
  const Json plan_of_model = read_document(source_tree().string() + "/scenarios/plans/qwen2-vl-7b_inline.json")->root;
  Json blocks = Json::array();
  // Ten times as slow as any formula, so that whatever is taken from it shows.
  for (const auto& [module, block, ms] : {std::tuple{"llm", "layer", 60.0},
                                          {"llm", "embedding", 1.0},
                                          {"llm", "head", 40.0},
                                          {"vision", "layer", 12.0},
                                          {"vision", "patch embedding", 1.0}}) {
    for (const double tokens : {1024.0, 4096.0}) {
      blocks.push_back({{"module", module},
                        {"block", block},
                        {"tokens", tokens},
                        {"sequence_tokens", 1024},
                        {"forward_ms", ms * tokens / 4096},
                        {"backward_input_ms", ms * tokens / 4096},
                        {"backward_weight_ms", ms * tokens / 4096}});
    }
  }
  const Json profile = {{"weft_profile", 2},      {"device", read_document(cluster_file)->root["device"]["name"]},
                        {"model", "qwen2-vl-7b"}, {"model_hash", plan_of_model["model"]["hash"]},
                        {"action_ms", 0.5},       {"blocks", blocks}};
  const std::string file = folder.write("p.json", profile.dump());
  const std::string out = (folder.path() / "plan.json").string();
  const std::vector<std::string> command = {"plan",        "--model",
                                            "qwen2-vl-7b", "--cluster",
                                            "dgx_h100",    "--workload",
                                            "vl_sft",      "--global-batch",
                                            "64",          "--space",
                                            space,         "--nodes",
                                            "2",           "--devices-per-node",
                                            "4",           "--batches",
                                            "4",           "--top",
                                            "2",           "--explain",
                                            "--out",       out};
  std::vector<std::string> measured = command;
  measured.insert(measured.end(), {"--profile", file, "--json"});
  const ProgramRun run = run_weft(measured);
  ASSERT_EQ(run.exit_status, 0) << run.err;
  const Json found = Json::parse(run.out);
  EXPECT_EQ(found["plan"]["world_size"], 8);
  EXPECT_EQ(found["plan"]["cluster"]["spec"]["devices_per_node"], 4);
  EXPECT_EQ(found["plan"]["cluster"]["spec"]["links"]["between_nodes"]["cards_per_node"], 4) << "in proportion";
  bool names_merger = false;
  for (const Json& block : found["profile"]["blocks"]) {
    names_merger |= block["block"] == "merger" && block["from"] == "formula";
    if (block["setting"] == "one device" && block["block"] != "merger") {
      EXPECT_NE(block["from"], "carried over");
    }
  }
  EXPECT_TRUE(names_merger) << found["profile"].dump();
  EXPECT_TRUE(found["profile"]["links"].empty()) << "the cluster's are taken";
  const ProgramRun simulated = run_weft({"simulate", "--plan", out, "--profile", file, "--json"});
  ASSERT_EQ(simulated.exit_status, 0) << simulated.err;
  EXPECT_EQ(Json::parse(simulated.out)["step_time_ms"], found["step_time_ms"]);
  const Json without = Json::parse(run_weft({"simulate", "--plan", out, "--json"}).out);
  EXPECT_LT(without["step_time_ms"].get<double>(), 0.5 * found["step_time_ms"].get<double>());
  const ProgramRun checked = run_weft({"check", "--plan", out, "--profile", file});
  EXPECT_NE(checked.out.find("p.json: "), std::string::npos) << checked.out;
  std::vector<std::string> wrong = command;
  wrong.insert(wrong.end(), {"--profile", file, "--devices-per-node", "0"});
  EXPECT_EQ(run_weft(wrong).exit_status, 2);
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

TEST(PlanVerb, ExplainsAndDrawsBatches) {
  const TemporaryFolder folder;
  const std::string space = folder.write("space.yaml", kSpace);
  const std::vector<std::string> common = {"plan",     "--model",    "qwen2-vl-7b", "--cluster",
                                           "dgx_h100", "--workload", "vl_sft",      "--global-batch",
                                           "64",       "--space",    space};
  const auto run = [&](std::vector<std::string> more) {
    more.insert(more.begin(), common.begin(), common.end());
    return run_weft(more);
  };
  const ProgramRun explained = run({"--explain", "--fastest", "--json"});
  ASSERT_EQ(explained.exit_status, 0) << explained.err;
  const Json explanation = Json::parse(explained.out)["explanation"];
  EXPECT_GE(explanation["alternatives"].size(), 3u);
  for (const Json& alternative : explanation["alternatives"]) {
    EXPECT_FALSE(alternative["reason"].get<std::string>().empty());
    if (alternative["fits"].get<bool>()) {
      // What differs by less than a quarter of a percent on drawn batches is not told apart.
      EXPECT_GE(alternative["slower_by"], -0.0025) << alternative["names"];
      double sum_ms = 0;
      for (const Json& part_ms : alternative["parts_ms"]) sum_ms += part_ms.get<double>();
      const double step_ms = Json::parse(explained.out)["step_time_ms"];
      EXPECT_NEAR(sum_ms, alternative["step_time_ms"].get<double>() - step_ms, 1e-6 * step_ms);
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
}

TEST(PlanVerb, SearchesForASystemAndPrintsItsSettings) {
  const std::vector<std::string> common = {"plan",       "--model", "qwen2-vl-7b",    "--cluster", "dgx_h100",
                                           "--workload", "vl_sft",  "--global-batch", "64"};
  const auto run = [&](std::vector<std::string> more) {
    more.insert(more.begin(), common.begin(), common.end());
    return run_weft(more);
  };
  const TemporaryFolder folder;
  const std::string out = (folder.path() / "plan.json").string();
  const ProgramRun found = run({"--for", "mindspeed-mm", "--out", out, "--json"});
  ASSERT_EQ(found.exit_status, 0) << found.err;
  const Json json = Json::parse(found.out);
  EXPECT_EQ(json["for"]["system"], "mindspeed-mm");
  EXPECT_GE(json["step_time_ms"], json["for"]["fastest_of_all"]["step_time_ms"]);
  // What it prints is what the plan exports to.
  const ProgramRun exported = run_weft({"export", "--plan", out, "--to", "mindspeed-mm", "--json"});
  ASSERT_EQ(exported.exit_status, 0) << exported.err;
  EXPECT_EQ(Json::parse(exported.out)["files"], json["for"]["files"]);
  const ProgramRun text = run({"--for", "mindspeed-mm"});
  EXPECT_NE(text.out.find("\nfor mindspeed-mm: "), std::string::npos) << text.out;
  EXPECT_NE(text.out.find(json["for"]["files"][0]["text"].get<std::string>()), std::string::npos) << text.out;
  const ProgramRun encoders = run({"--for", "megatron"});
  EXPECT_EQ(encoders.exit_status, 2);
  EXPECT_NE(encoders.err.find("--for: megatron cannot express"), std::string::npos) << encoders.err;
}

TEST(PlanVerb, SaysWhatTheFastestWouldBeAndWhyItIsNotChosen) {
  const std::vector<std::string> common = {"plan",       "--model", "qwen2-vl-7b",    "--cluster", "dgx_h100",
                                           "--workload", "vl_sft",  "--global-batch", "64",        "--batches",
                                           "8"};
  const auto run = [&](std::vector<std::string> more) {
    more.insert(more.begin(), common.begin(), common.end());
    return run_weft(more);
  };
  const Json fastest = Json::parse(run({"--fastest", "--json"}).out);
  EXPECT_EQ(fastest["step_time_ms"], fastest["fastest"]["step_time_ms"]);
  EXPECT_EQ(fastest["because"], "");
  const Json wide = Json::parse(run({"--within", "30", "--json"}).out);
  EXPECT_EQ(wide["fastest"], fastest["fastest"]);
  EXPECT_GT(wide["slower_by"], 0.0);
  EXPECT_LE(wide["slower_by"], 0.3);
  EXPECT_GE(wide["headroom_gib"].get<double>(),
            0.08 * wide["plan"]["cluster"]["spec"]["device"]["memory_gib"].get<double>());
  const std::string text = run({"--within", "30"}).out;
  // A search that ran out of time on a busy machine does not say that nothing is faster.
  const bool is_found_alone = fastest["beyond_space"] || text.find("not proven") != std::string::npos;
  EXPECT_NE(text.find(is_found_alone ? "fastest that was found: " : "fastest in this space: "), std::string::npos)
      << text;
  EXPECT_NE(text.find("because it needs "), std::string::npos) << text;
  EXPECT_NE(text.find("headroom: "), std::string::npos) << text;
}

TEST(PlanVerb, SaysWhatWasProvenAndWhatWasGainedBeyondTheSpace) {
  const std::vector<std::string> common = {"plan",     "--model",    "qwen2.5-omni-7b", "--cluster",
                                           "hgx_h200", "--workload", "omni_short",      "--batches",
                                           "0",        "--fastest",  "--global-batch",  "256"};
  const auto run = [&](std::vector<std::string> more) {
    more.insert(more.begin(), common.begin(), common.end());
    return run_weft(more).out;
  };
  const Json found = Json::parse(run({"--json"}));
  ASSERT_GT(found["improved_by"], 0.0);
  EXPECT_EQ(found["beyond_space"], true);
  EXPECT_NEAR(found["step_time_ms"].get<double>(),
              found["bound_ms"].get<double>() * (1 - found["improved_by"].get<double>()), 1e-6);
  const std::string text = run({});
  EXPECT_NE(text.find("optimal in this space: "), std::string::npos) << text;
  EXPECT_NE(text.find("one setting after another"), std::string::npos) << text;
  EXPECT_NE(text.find("beyond this space"), std::string::npos) << text;
}

TEST(PlanVerb, SaysWhatWasProvenWithoutTheStrategyThatItFound) {
  const TemporaryFolder folder;
  const std::string space = folder.write("space.yaml", "llm: {tp: 8}\n");
  const std::string workload =
      folder.write("workload.yaml", "global_batch_samples: 64\nsequence_tokens: 1024\nprecision: bf16\n");
  const auto run = [&](const char* how, const char* more) {
    return run_weft({"plan", "--model", "llama3-8b", "--cluster", "dgx_h100", "--nodes", "2", "--workload", workload,
                     "--space", space, "--fastest", how, more})
        .out;
  };
  const Json found = Json::parse(run("--json", "--explain"));
  const Json &strategy = found["strategy"], &usual = strategy["usual"];
  EXPECT_EQ(found["optimal"], false);
  EXPECT_EQ(usual["optimal"], true);
  EXPECT_LT(found["step_time_ms"], strategy["usual_ms"]);
  EXPECT_NEAR(strategy["usual_ms"].get<double>(),
              usual["bound_ms"].get<double>() * (1 - usual["improved_by"].get<double>()), 1e-6);
  const std::string text = run("--top", "3");
  EXPECT_NE(text.find("with the usual strategy, optimal in this space: "), std::string::npos) << text;
  EXPECT_EQ(text.find("not proven"), std::string::npos) << text;
  EXPECT_NE(text.find("1f1b, with a strategy "), std::string::npos) << text;
  EXPECT_EQ(run("--top", "3"), text) << "same inputs, same plan";
}

TEST(PlanVerb, RefusesMarginsAndSystemsThatAreNone) {
  const auto refused = [](std::vector<std::string> more) {
    std::vector<std::string> all = {"plan", "--model", "llama3-8b", "--cluster", "dgx_h100", "--workload", "text_4k"};
    all.insert(all.end(), more.begin(), more.end());
    const ProgramRun run = run_weft(all);
    EXPECT_EQ(run.exit_status, 2) << run.out;
    return run.err;
  };
  for (const char* within : {"-1", "nan", "200", "inf", "2%", ""}) {
    const std::string err = refused({std::string("--within=") + within});
    EXPECT_NE(err.find("--within"), std::string::npos) << err;
  }
  EXPECT_NE(refused({"--within", "200"})
                .find("--within: is '200', a percentage from 0 to 100 is needed. Without it, the simplest plan"),
            std::string::npos)
      << refused({"--within", "200"});
  EXPECT_NE(refused({"--memory-margin", "120"}).find("--memory-margin: is "), std::string::npos);
  EXPECT_NE(refused({"--fastest", "--within", "1"}).find("--fastest: is given together with --within"),
            std::string::npos);
  EXPECT_NE(refused({"--for", "megatronn"}).find("--for: "), std::string::npos);
  EXPECT_NE(
      refused({"--for", "megatronn"}).find("Known are megatron, mindspeed-mm, mindformers, mindspeed-rl or torchtitan"),
      std::string::npos)
      << refused({"--for", "megatronn"});
}

}  // namespace
}  // namespace weft
