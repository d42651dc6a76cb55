#include <gtest/gtest.h>

#include "tests/cli/run_program.h"
#include "tests/support/source_tree.h"
#include "weft/base/document.h"
#include "weft/plan/plan.h"

namespace weft {
namespace {

const std::string kPlan = source_tree().string() + "/scenarios/plans/llama3-8b_gpipe_tp2_pp2_dp2.json";

TEST(CheckVerb, SaysThatALegalPlanIsLegal) {
  const ProgramRun run = run_weft({"check", "--plan", kPlan});
  EXPECT_EQ(run.exit_status, 0) << run.err;
  EXPECT_NE(run.out.find("llama3-8b on 8 ranks of hgx_h200"), std::string::npos) << run.out;
  const ProgramRun json = run_weft({"check", "--plan", kPlan, "--json"});
  EXPECT_EQ(Json::parse(json.out)["legal"], true);
}

TEST(CheckVerb, NamesEveryViolationWithItsArithmetic) {
  const TemporaryFolder folder;
  Json plan = read_document(kPlan)->root;
  plan["modules"]["llm"]["tp"] = 4;
  const ProgramRun one = run_weft({"check", "--plan", folder.write("one.json", plan.dump())});
  EXPECT_EQ(one.exit_status, 2);
  EXPECT_EQ(one.out, "");
  EXPECT_NE(one.err.find("one.json: modules.llm.ranks: tp 4 × cp 1 × pp 2 × dp 2 = 16, but the module has 8 ranks"),
            std::string::npos)
      << one.err;
  plan["schedule"]["mbs"] = 3;
  const ProgramRun two = run_weft({"check", "--plan", folder.write("two.json", plan.dump())});
  EXPECT_EQ(two.exit_status, 2);
  for (const char* part : {"and 1 other field", "  modules.llm.ranks: tp 4", "  schedule.microbatches: mbs 3"}) {
    EXPECT_NE(two.err.find(part), std::string::npos) << "no '" << part << "' in " << two.err;
  }
}

TEST(CheckVerb, NotesWhatAnOlderVersionSaidInVain) {
  const TemporaryFolder folder;
  const std::string now = source_tree().string() + "/scenarios/plans/qwen2-vl-72b_16384.json";
  // What is known of a cluster changes.
  Json document = read_document(source_tree().string() + "/tests/golden/version_1/qwen2-vl-72b_16384.json")->root;
  document["cluster"] = read_document(now)->root["cluster"];
  const std::string old = folder.write("old.json", document.dump());
  const ProgramRun run = run_weft({"check", "--plan", old, "--against", now});
  EXPECT_EQ(run.exit_status, 0) << run.err;
  EXPECT_EQ(run.out, "the plans are the same\n");
  EXPECT_EQ(run.err,
            "weft: note: " + old + ": overlap.tp: is true in version 1, which nothing obeyed, and is read as false\n");
  EXPECT_EQ(run_weft({"check", "--plan", now, "--against", now}).err, "");
}

TEST(CheckVerb, ShowsHowTwoPlansDiffer) {
  const TemporaryFolder folder;
  Json plan = read_document(kPlan)->root;
  plan["schedule"]["name"] = "1f1b";
  const ProgramRun run = run_weft({"check", "--plan", kPlan, "--against", folder.write("other.json", plan.dump())});
  EXPECT_EQ(run.exit_status, 0) << run.err;
  EXPECT_EQ(run.out, "schedule.name: \"gpipe\" -> \"1f1b\"\n");
  EXPECT_EQ(run_weft({"check", "--plan", kPlan, "--against", kPlan}).out, "the plans are the same\n");
}

/// The one line that a check of a changed plan ends with.
std::string refusal(const Json& plan) {
  const TemporaryFolder folder;
  const ProgramRun run = run_weft({"check", "--plan", folder.write("plan.json", plan.dump())});
  EXPECT_EQ(run.exit_status, 2) << run.out;
  EXPECT_EQ(run.out, "");
  return run.err;
}

Json shipped(const std::string& name) {
  return read_document(source_tree().string() + "/scenarios/plans/" + name + ".json")->root;
}

/// Of the fullest rank.
double needed_gib(const Json& plan) {
  const TemporaryFolder folder;
  const ProgramRun run = run_weft({"simulate", "--plan", folder.write("plan.json", plan.dump()), "--json"});
  EXPECT_EQ(run.exit_status, 0) << run.err;
  const Json report = Json::parse(run.out);
  double most = 0;
  for (const Json& rank : report["peak_memory_gib"]) most = std::max(most, rank.get<double>());
  return most;
}

void set_memory(Json& plan, double gib) {
  Json& cluster = plan["cluster"];
  cluster["spec"]["device"]["memory_gib"] = gib;
  cluster["hash"] = hash_of(cluster["spec"]);
}

void set_batch(Json& plan, int64_t samples) {
  Json& workload = plan["workload"];
  workload["spec"]["global_batch_samples"] = samples;
  workload["hash"] = hash_of(workload["spec"]);
  plan["schedule"]["microbatches"] =
      samples / (plan["schedule"]["mbs"].get<int64_t>() * plan["modules"]["llm"]["dp"].get<int64_t>());
}

TEST(CheckVerb, AnEncodersMacroBatchThatNoMemoryHoldsIsNamedWithTheLargestThatFits) {
  for (const char* name : {"qwen2-vl-7b_partial", "qwen2.5-vl-7b_disjoint_stream", "qwen2.5-vl-7b_colocated_fill"}) {
    Json plan = shipped(name);
    Json& vision = plan["modules"]["vision"];
    vision["mbs_scale"] = 1024;
    // An order of its own that fits the macro batches: one of them, before everything and after it.
    if (vision["form"] == "fill") {
      for (auto& [rank, row] : vision["actions"].items()) {
        Json pipeline = {"0EF0"};
        for (const Json& action : row) {
          if (action.get<std::string>().find('E') == std::string::npos) pipeline.push_back(action);
        }
        pipeline.push_back("0EB0");
        row = pipeline;
      }
    }
    // A macro batch has no more samples than a step: a step has as many, or a device less memory.
    if (vision["form"] == "fill") {
      set_memory(plan, needed_gib(plan) - 1);
    } else {
      set_batch(plan, 1024 * vision["dp"].get<int64_t>());
    }
    const std::string error = refusal(plan);
    EXPECT_NE(error.find("modules.vision.mbs_scale: is 1024, and macro batches of 1024 × mbs "), std::string::npos)
        << name << ": " << error;
    const std::string advice = "The largest mbs_scale of vision that fits is ";
    const size_t place = error.find(advice);
    ASSERT_NE(place, std::string::npos) << name << ": " << error;
    if (vision["form"] == "fill") continue;
    // What it says is true: that one fits, and the next does not.
    const int64_t largest = std::stoll(error.substr(place + advice.size()));
    const TemporaryFolder folder;
    vision["mbs_scale"] = largest;
    EXPECT_EQ(run_weft({"check", "--plan", folder.write("fits.json", plan.dump())}).exit_status, 0) << name << largest;
    vision["mbs_scale"] = largest + 1;
    EXPECT_EQ(run_weft({"check", "--plan", folder.write("more.json", plan.dump())}).exit_status, 2) << name << largest;
  }
}

TEST(CheckVerb, AnEncoderWhoseActivationsDoNotFitIsToldToRecomputeThem) {
  Json plan = shipped("qwen2-vl-7b_colocated_before");
  plan["modules"]["vision"]["recompute_from_inputs"] = false;
  const std::string error = refusal(plan);
  EXPECT_NE(
      error.find("modules.vision.recompute_from_inputs: is off, and the activations of all macro batches of vision "
                 "(mbs_scale 1) do not fit: pipeline rank 0 needs "),
      std::string::npos)
      << error;
  EXPECT_NE(error.find("With recompute_from_inputs, mbs_scale 1 fits."), std::string::npos) << error;
}

TEST(CheckVerb, NearestLegalSettingsAreNamed) {
  Json plan = shipped("llama3-8b_cp4_ulysses2");
  plan["modules"]["llm"]["cp_ulysses"] = 3;
  EXPECT_NE(refusal(plan).find("modules.llm.cp_ulysses: is 3, which does not divide cp 4; nearest are 2 and 4"),
            std::string::npos);
  plan = shipped("qwen3-30b-a3b_zb_h1_ep8");
  plan["modules"]["llm"]["ep"] = 6;
  EXPECT_NE(refusal(plan).find("of what divides both 128 experts and dp·cp 8, nearest are 4 and 8"), std::string::npos);
  plan = shipped("qwen2.5-vl-7b_disjoint_stream");
  plan["modules"]["vision"]["ranks"] = "16-23";
  EXPECT_NE(refusal(plan).find("modules.vision.ranks: names rank 23, but world_size is 16: ranks are 0 to 15"),
            std::string::npos);
  EXPECT_NE(refusal(plan).find("no module uses ranks 8-15; set idle_ranks if that is meant"), std::string::npos);
}

TEST(CheckVerb, ImagesThatNothingInTheModelTakesAreRefused) {
  const ProgramRun run = run_weft({"plan", "--model", "llama3-8b", "--cluster", "dgx_h100", "--workload", "vl_sft"});
  EXPECT_EQ(run.exit_status, 2);
  EXPECT_NE(run.err.find("images_per_sample: has up to 4 images, but llama3-8b has no vision encoder. Use a workload "
                         "without images, or a model with such an encoder."),
            std::string::npos)
      << run.err;
}

TEST(CheckVerb, WhatIsNotAPlanIsRefused) {
  const TemporaryFolder folder;
  EXPECT_EQ(run_weft({"check"}).exit_status, 2);
  EXPECT_EQ(run_weft({"check", "--plan", folder.write("empty.json", "{}")}).exit_status, 2);
  const ProgramRun newer = run_weft({"check", "--plan", folder.write("newer.json", "{\"weft_plan\": 7}")});
  EXPECT_EQ(newer.exit_status, 2);
  EXPECT_NE(newer.err.find("newer.json: weft_plan: is 7"), std::string::npos) << newer.err;
}

}  // namespace
}  // namespace weft
