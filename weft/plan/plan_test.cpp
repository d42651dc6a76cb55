#include "weft/plan/plan.h"

#include <gtest/gtest.h>

#include "tests/support/source_tree.h"
#include "weft/base/file.h"
#include "weft/plan/diff.h"
#include "weft/plan/plan_json.h"
#include "weft/plan/rank_set.h"

namespace weft {
namespace {

const std::string kPlans = source_tree().string() + "/scenarios/plans/";

Json shipped(const std::string& name) {
  return read_document(kPlans + name + ".json")->root;
}

/// The message that reading ends in.
std::string findings(const Json& json) {
  const Result<Plan> plan = read_plan({.source = "plan.json", .root = json});
  return plan ? "" : plan.error().message();
}

/// After one field of a shipped plan is replaced.
std::string findings_with(const std::string& name, const std::string& pointer, const Json& value) {
  Json json = shipped(name);
  json[Json::json_pointer(pointer)] = value;
  return findings(json);
}

const std::string kTp = "llama3-8b_gpipe_tp2_pp2_dp2";

TEST(RankSet, RoundTripsAndKeepsTheOrder) {
  EXPECT_EQ(ranks_to_text({0, 1, 2, 3, 8, 10, 11, 5}), "0-3,8,10-11,5");
  EXPECT_EQ(*parse_ranks("0-3,8,10-11,5"), (std::vector<int64_t>{0, 1, 2, 3, 8, 10, 11, 5}));
  for (const char* bad : {"", "a", "3-1", "1,", "1-", "-1", "1;2", "0-99999999999", "1,,2", "5000000"})
    EXPECT_FALSE(parse_ranks(bad).ok()) << bad;
}

TEST(ReadPlan, APredictionIsReadHoweverSlow) {
  EXPECT_EQ(findings_with(kTp, "/predicted", {{"step_time_ms", 3.4e21}, {"throughput_samples_per_s", 1e300}}), "");
  EXPECT_NE(findings_with(kTp, "/predicted", {{"step_time_ms", -1}}), "");
}

TEST(ReadPlan, NamesOfSeveralLinesAreRefused) {
  EXPECT_NE(findings_with(kTp, "/model/name", "a\nb").find("plan.json: model.name: is 'a\\x0ab'"), std::string::npos);
}

TEST(ReadPlan, ActionsAreOfPipelineRanksWrittenInOneWay) {
  const auto with_key = [](const std::string& key, const Json& value) {
    Json json = shipped("qwen2.5-vl-7b_colocated_fill");
    json["modules"]["vision"]["actions"][key] = value;
    return findings(json);
  };
  const Json words = Json::array({"0EF0"});
  EXPECT_EQ(with_key("0", words), "");
  for (const char* key : {"00", "1-1", "+1", "-1", "16384", "1 ", "", "99999999999999999999"}) {
    EXPECT_EQ(with_key(key, words), std::string("plan.json: modules.vision.actions: has the key '") + key +
                                        "', a pipeline rank from 0 to 16383 is needed, without leading zeros")
        << key;
  }
  EXPECT_EQ(with_key("1", {3}),
            "plan.json: modules.vision.actions.1: is a list of other things, a list of texts is "
            "needed");
  EXPECT_EQ(
      findings_with("qwen2.5-vl-7b_colocated_fill", "/modules/vision/actions", {"0EF0"}),
      "plan.json: modules.vision.actions: is a list, a mapping from pipeline ranks to lists of actions is needed");
}

TEST(ReadPlan, StrategiesOfMoreKindsOfBlocksThanModelsHaveAreRefused) {
  Json blocks = Json::object();
  for (int i = 0; i < 4097; ++i) blocks["k" + std::to_string(i)] = Json::object();
  EXPECT_NE(findings_with(kTp, "/modules/llm/strategy", {{"blocks", blocks}})
                .find("modules.llm.strategy.blocks: has 4097 kinds of blocks, at most 4096 are allowed"),
            std::string::npos);
}

TEST(ReadPlan, PredictedMemoryIsNumbersThatCanBeWrittenAgain) {
  const auto with_peaks = [](const Json& value) { return findings_with(kTp, "/predicted/peak_memory_gib", value); };
  EXPECT_EQ(with_peaks({0, 1.5, 1e308}), "");
  EXPECT_NE(with_peaks("abc").find("predicted.peak_memory_gib: is the text 'abc', a list of numbers is needed"),
            std::string::npos);
  EXPECT_NE(with_peaks({1, "abc"}).find("predicted.peak_memory_gib[1]: is the text 'abc', a number from 0 to"),
            std::string::npos);
  EXPECT_NE(with_peaks({-5}).find("predicted.peak_memory_gib[0]: is the number -5, a number from 0 to"),
            std::string::npos);
}

TEST(ReadPlan, MalformedDocumentsNameTheField) {
  EXPECT_EQ(findings_with(kTp, "/weft_plan", 3),
            "plan.json: weft_plan: is 3, but this program reads versions up to 2. Use a newer Weft, or make the plan "
            "again with this one.");
  EXPECT_NE(findings_with(kTp, "/modules/llm/ranks", "0-").find("plan.json: modules.llm.ranks: is '0-': a range goes"),
            std::string::npos);
  EXPECT_NE(findings_with(kTp, "/modules/llm/tpp", 2).find("plan.json: modules.llm.tpp: is not a known field"),
            std::string::npos);
  const std::string layers = " Give a list per pipeline rank of block counts per chunk, like [[7, 7], [7, 7]].";
  const auto with_layers = [&](const Json& value) { return findings_with(kTp, "/modules/llm/layers", value); };
  EXPECT_EQ(
      with_layers({{-1}, {33}}),
      "plan.json: modules.llm.layers[0][0]: is the number -1, a whole number from 0 to 1000000000 is needed." + layers);
  EXPECT_EQ(with_layers({{16}, {3.5}}),
            "plan.json: modules.llm.layers[1][0]: is the number 3.5, a whole number from 0 to 1000000000 is needed." +
                layers);
  EXPECT_EQ(with_layers({16, 16}),
            "plan.json: modules.llm.layers[0]: is the number 16, a list of whole numbers is needed." + layers);
  EXPECT_EQ(with_layers("abc"),
            "plan.json: modules.llm.layers: is the text 'abc', a list of lists is needed." + layers);
  EXPECT_EQ(with_layers(nullptr), "plan.json: modules.llm.layers: is missing." + layers);
  EXPECT_NE(findings_with(kTp, "/model/config/hidden_size", 2048).find("plan.json: model.hash: is '"),
            std::string::npos);
  EXPECT_NE(findings_with(kTp, "/cluster/spec/nodes", 2).find("It was changed after the plan was made"),
            std::string::npos);
  EXPECT_NE(findings_with(kTp, "/offload", {{"optimizer", "cpu"}}).find("offload.optimizer: is the text"),
            std::string::npos);
  Json json = shipped(kTp);
  json["modules"].erase("llm");
  EXPECT_NE(findings(json).find("plan.json: modules.llm: is missing"), std::string::npos);
}

// A run's folder is called like its plan's model.
TEST(ReadPlan, AModelsNameIsThatOfAFolder) {
  EXPECT_EQ(findings_with(kTp, "/model/name", "llama3 (8B)"), "");
  EXPECT_EQ(
      findings_with(kTp, "/model/name", "../side"),
      "plan.json: model.name: is '../side', which begins with a dot; a name that a folder can have is needed. Give "
      "the model another name.");
  for (const char* name : {"/tmp/side", ".hidden", "a\nb"})
    EXPECT_NE(findings_with(kTp, "/model/name", name).find("model.name: is '"), std::string::npos) << name;
}

TEST(ReadPlan, EveryBlockSaysWhatItRecomputes) {
  Json json = shipped(kTp);  // 16 blocks a rank
  json["modules"]["llm"]["recompute"] = {{{"keep*3", "full", "attention*2", "keep*4", "full*5", "keep"}},
                                         {Json::array()}};
  const Plan plan = *read_plan({.source = "plan.json", .root = json});
  const Recompute& recompute = plan.modules[0].recompute[0][0];
  EXPECT_EQ(std::vector<RecomputeRun>(recompute.runs().begin(), recompute.runs().end()),
            (std::vector<RecomputeRun>{{BlockRecompute::kKeep, 3},
                                       {BlockRecompute::kFull, 1},
                                       {BlockRecompute::kAttention, 2},
                                       {BlockRecompute::kKeep, 4},
                                       {BlockRecompute::kFull, 5}}));
  EXPECT_EQ(recompute.count(BlockRecompute::kFull), 6);
  EXPECT_EQ(plan.modules[0].recompute[1][0], Recompute());
  EXPECT_EQ(plan_to_json(plan)["modules"]["llm"]["recompute"], json["modules"]["llm"]["recompute"]);
  json["modules"]["llm"]["recompute"][0][0] = {"keep*2",    "keep",   "full",   "attention",
                                               "attention", "keep*4", "full*5", "keep"};
  EXPECT_EQ(plan_to_text(*read_plan({.source = "plan.json", .root = json})), plan_to_text(plan));
  json["modules"]["llm"].erase("recompute");
  EXPECT_TRUE(read_plan({.source = "plan.json", .root = json})->modules[0].recompute.empty());
}

TEST(ReadPlan, MacroBatchesAreWholeNumbersOrFractionsOfMbs) {
  const std::string name = "qwen2.5-omni-7b_colocated_dp8", field = "/modules/vision/mbs_scale";
  const auto written = [&](const Json& value) {
    Json json = shipped(name);
    json[Json::json_pointer(field)] = value;
    return plan_to_json(*read_plan({.source = "plan.json", .root = json}))[Json::json_pointer(field)];
  };
  EXPECT_EQ(written(4), 4);
  EXPECT_EQ(written("1/4"), "1/4");
  EXPECT_EQ(written("6/4"), "3/2") << "in lowest terms";
  EXPECT_EQ(written("4/2"), 2);
  for (const char* bad :
       {"", "1/", "/4", "0/4", "1/0", "1/4 ", "-1/4", "1.5", "4", "1/2/3", "1/99999999999999999999"}) {
    const std::string message = findings_with(name, field, bad);
    EXPECT_NE(message.find("plan.json: modules.vision.mbs_scale: is '"), std::string::npos) << message;
    EXPECT_NE(message.find("a whole number from 1 to 1000000 or two of them like \"1/4\" are needed"),
              std::string::npos)
        << message;
  }
  Json old = read_document(source_tree().string() + "/tests/golden/version_1/qwen2-vl-72b_16384.json")->root;
  old["modules"]["vision"]["mbs_scale"] = "1/4";
  EXPECT_NE(findings(old).find("modules.vision.mbs_scale: is the text"), std::string::npos) << findings(old);
}

TEST(ReadPlan, WhatVersion2SaysOfOverlapStays) {
  Json json = shipped(kTp);
  json["overlap"]["tp"] = true;
  PlanNotes notes;
  EXPECT_TRUE(read_plan({.source = "plan.json", .root = json}, &notes)->overlap_tp);
  json.erase("overlap");
  EXPECT_FALSE(read_plan({.source = "plan.json", .root = json}, &notes)->overlap_tp);
  EXPECT_TRUE(notes.empty());
}

TEST(ReadPlan, WordsOfRecomputationThatDoNotFitAreNamed) {
  const auto found = [](const Json& chunk) {
    const std::string message = findings_with(kTp, "/modules/llm/recompute/1/0", chunk);
    const std::string start = "plan.json: modules.llm.recompute[1][0]: ";
    EXPECT_EQ(message.substr(0, start.size()), start);
    return message.substr(std::min(start.size(), message.size()));
  };
  EXPECT_EQ(
      found({"full*2", "keep*13"}),
      "adds up to 15 blocks, but the chunk has 16. The blocks of a chunk's recomputation are its layers; none at all "
      "keeps everything.");
  for (const Json& bad : {Json("fulll*2"), Json("full*0"), Json("full*-1"), Json("full*"), Json("full*2x"), Json(2),
                          Json("selective"), Json(""), Json("*2"), Json("full*99999999999999999999")}) {
    EXPECT_NE(found({bad}).find("allowed is a list of \"keep\", \"full\" and \"attention\""), std::string::npos) << bad;
  }
  EXPECT_EQ(found({{"full", 2}}).substr(0, 13), "is a mapping;");
  EXPECT_NE(findings_with(kTp, "/modules/llm/recompute", 3).find("modules.llm.recompute: is the number 3, a list per"),
            std::string::npos);
}

TEST(ReadPlan, CountsOfVersion1AreTheFirstBlocks) {
  const std::string old = source_tree().string() + "/tests/golden/version_1/qwen2-vl-72b_16384.json";
  PlanNotes notes;
  Result<Plan> plan = read_plan_file(old, &notes);
  ASSERT_TRUE(plan.ok()) << plan.error().message();
  const Result<Plan> now = read_plan_file(kPlans + "qwen2-vl-72b_16384.json");
  ASSERT_TRUE(now.ok()) << now.error().message();
  plan->cluster = now->cluster;  // of which more is known since
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_NE(notes[0].find("qwen2-vl-72b_16384.json: overlap.tp: is true in version 1"), std::string::npos) << notes[0];
  EXPECT_FALSE(plan->overlap_tp);
  EXPECT_EQ(read_document(old)->root["weft_plan"], 1);
  EXPECT_EQ(plan_to_text(*plan), *read_file(kPlans + "qwen2-vl-72b_16384.json", 64u << 20));
  Json json = read_document(old)->root;
  json["modules"]["llm"]["recompute"][3][0]["full"] = 20;
  EXPECT_NE(findings(json).find("modules.llm.recompute[3][0]: adds up to 21 blocks, but the chunk has 5"),
            std::string::npos);
  json["modules"]["llm"]["recompute"][3][0] = {"full*2"};
  EXPECT_NE(findings(json).find("modules.llm.recompute[3][0]: has a list; version 1 allows counts"), std::string::npos);
}

TEST(DiffPlans, ListsTheFieldsThatDiffer) {
  const Plan before = *read_plan_file(kPlans + kTp + ".json");
  Plan after = before;
  EXPECT_TRUE(diff_plans(before, after).empty());
  after.modules[0].tp = 4;
  after.modules[0].actions.clear();
  after.schedule.name = "1f1b";
  after.workload.global_batch_samples = 64;
  const std::vector<Difference> differences = diff_plans(before, after);
  ASSERT_EQ(differences.size(), 3u);
  EXPECT_EQ(differences[0].field, "workload.hash");
  EXPECT_EQ(differences[1], (Difference{"modules.llm.tp", "2", "4"}));
  EXPECT_EQ(differences[2], (Difference{"schedule.name", "\"gpipe\"", "\"1f1b\""}));
}

}  // namespace
}  // namespace weft
