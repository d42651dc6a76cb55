#include "weft/meaning/check.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/support/source_tree.h"
#include "weft/base/file.h"
#include "weft/meaning/plan_schedule.h"
#include "weft/meaning/stage_parts.h"
#include "weft/plan/plan_json.h"
#include "weft/spec/model_reader.h"

namespace weft {
namespace {

const std::string kPlans = source_tree().string() + "/scenarios/plans/";

Json shipped(const std::string& name) {
  return read_document(kPlans + name + ".json")->root;
}

/// The message that reading ends in, or every violation, a line each.
std::string findings(const Json& json) {
  const Result<Plan> plan = read_plan({.source = "plan.json", .root = json});
  if (!plan) return plan.error().message();
  std::string text;
  for (const Violation& violation : check_plan(*plan)) text += violation.field + ": " + violation.message + "\n";
  return text;
}

/// After one field of a shipped plan is replaced.
std::string findings_with(const std::string& name, const std::string& pointer, const Json& value) {
  Json json = shipped(name);
  json[Json::json_pointer(pointer)] = value;
  return findings(json);
}

const std::string kTp = "llama3-8b_gpipe_tp2_pp2_dp2";

TEST(CheckPlan, ShowsTheArithmetic) {
  EXPECT_EQ(findings_with(kTp, "/modules/llm/tp", 4),
            "modules.llm.ranks: tp 4 × cp 1 × pp 2 × dp 2 = 16, but the module has 8 ranks; dp 1 makes 8\n");
  EXPECT_EQ(findings_with(kTp, "/schedule/microbatches", 15),
            "schedule.microbatches: mbs 1 × microbatches 15 × dp 2 = 30, but the global batch is 32; microbatches 16 "
            "makes 32\n");
  EXPECT_EQ(findings_with(kTp, "/modules/llm/layers", {{16}, {15}}),
            "modules.llm.layers: add up to 31, but the module has 32 layers\n");
  EXPECT_EQ(findings_with(kTp, "/modules/llm/layers", {{16, 16}}),
            "modules.llm.layers: must have 2 rows (pp) of 1 entries (vpp)\n"
            "modules.llm.recompute: has 2 rows, but layers has 1\n");
  Plan recomputed = *read_plan({.source = "plan.json", .root = shipped(kTp)});
  recomputed.modules[0].recompute[0][0].add(BlockRecompute::kKeep, 19);
  recomputed.modules[0].recompute[0][0].add(BlockRecompute::kFull, 1);
  const std::vector<Violation> longer = check_plan(recomputed);
  ASSERT_EQ(longer.size(), 1u);
  EXPECT_EQ(longer[0], (Violation{"modules.llm.recompute[0][0]", "is about 20 blocks, but the chunk has 16"}));
  EXPECT_EQ(findings_with(kTp, "/modules/llm/axis_order", {"tp", "dp", "pp"}),
            "modules.llm.axis_order: is [tp, dp, pp], but each of tp, cp, dp and pp must be there once\n");
}

TEST(CheckPlan, NamesEveryViolationInOneRun) {
  Json json = shipped(kTp);
  json["modules"]["llm"]["tp"] = 64;
  json["schedule"]["mbs"] = 3;
  json["schedule"]["name"] = "1f1v";
  json["world_size"] = 16;
  const std::string all = findings(json);
  for (const char* part :
       {"tp 64 × cp 1", "modules.llm.tp: is 64, but there are only 32 heads to share out", "mbs 3 × microbatches 16",
        "'1f1v' is not a schedule", "no module uses ranks 8-15", "the cluster has 1 node × 8 = 8 devices"}) {
    EXPECT_NE(all.find(part), std::string::npos) << "no '" << part << "' in\n" << all;
  }
}

TEST(CheckPlan, WhatTrainingDoesNotObeyIsRefused) {
  EXPECT_EQ(findings_with(kTp, "/overlap/tp", true),
            "overlap.tp: is true, but training does not overlap the communication of tensor parallelism yet; use "
            "false\n");
  EXPECT_EQ(findings_with(kTp, "/offload/optimizer", 0.5),
            "offload.optimizer: is 0.5, but training does not offload yet; use 0\n");
  for (const char* field : {"compute", "master", "reduce"}) {
    EXPECT_EQ(
        findings_with(kTp, std::string("/precision/") + field, "fp16"),
        std::string("precision.") + field +
            ": is fp16, whose small gradients vanish without a scaled loss; fp64, fp32 and bf16 are trained with\n");
  }
  const std::string inlined = "qwen2-vl-7b_inline";
  const int64_t zero = shipped(inlined)["modules"]["llm"]["zero"].get<int64_t>();
  EXPECT_NE(
      findings_with(inlined, "/modules/vision/zero", zero == 1 ? 0 : 1).find("an inline encoder lies in its stages"),
      std::string::npos);
  // Runs of others may have been made with it.
  Plan unfused = *read_plan({.source = "plan.json", .root = shipped(kTp)});
  unfused.workload.attention = AttentionKernel::kUnfused;
  EXPECT_TRUE(check_plan(unfused, PlanUse::kPrice).empty());
  ASSERT_EQ(check_plan(unfused).size(), 1U);
  EXPECT_EQ(check_plan(unfused).front().field, "workload.attention");
  // Modules drop what their configuration says.
  const auto plan_with = [](const std::string& name, const std::string& pointer, const Json& value) {
    Plan plan = *read_plan({.source = "plan.json", .root = shipped(name)});
    Json config = plan.model.config;
    config[Json::json_pointer(pointer)] = value;
    plan.model = *read_model({.source = "config.json", .root = config}, plan.model.name);
    return plan;
  };
  EXPECT_TRUE(check_plan(plan_with(kTp, "/attention_dropout", 0.1)).empty());
  EXPECT_TRUE(check_plan(plan_with(inlined, "/vision_config/attention_dropout", 0.1)).empty());
  // Models that can be planned but not run.
  const Plan by_length = plan_with(kTp, "/rope_scaling", {{"type", "dynamic"}, {"factor", 2.0}});
  EXPECT_TRUE(check_plan(by_length, PlanUse::kPrice).empty());
  ASSERT_EQ(check_plan(by_length).size(), 1U);
  EXPECT_EQ(check_plan(by_length).front().field, "model.rope_scaling.type");
  EXPECT_NE(check_plan(by_length).front().message.find("planned but not run. Use default"), std::string::npos);
}

TEST(CheckPlan, ProductsThatDoNotFitAreRefusedAndNotComputed) {
  Json json = shipped(kTp);
  for (const char* degree : {"tp", "cp", "pp", "dp"}) json["modules"]["llm"][degree] = 1'000'000;
  EXPECT_NE(findings(json).find("= 9223372036854775807, but the module has 8 ranks"), std::string::npos)
      << findings(json);
}

TEST(CheckPlan, RanksMustExistAndBeUsedOnce) {
  EXPECT_EQ(findings_with(kTp, "/modules/llm/ranks", "0-6,8"),
            "modules.llm.ranks: names rank 8, but world_size is 8: ranks are 0 to 7\n"
            "world_size: is 8, but no module uses rank 7; set idle_ranks if that is meant\n");
  EXPECT_EQ(findings_with(kTp, "/modules/llm/ranks", "0-6,0"),
            "modules.llm.ranks: names rank 0 twice\n"
            "world_size: is 8, but no module uses rank 7; set idle_ranks if that is meant\n");
}

TEST(CheckPlan, ExpertsAndContextParallelismMustDivide) {
  const std::string moe = "qwen3-30b-a3b_zb_h1_ep8";
  EXPECT_EQ(
      findings_with(moe, "/modules/llm/ep", 16),
      "modules.llm.ep: is 16, which does not divide dp 8 × cp 1 = 8; of what divides both 128 experts and dp·cp 8, "
      "nearest is 8\n");
  const std::string nearest = "; of what divides both 128 experts and dp·cp 8, nearest are 2 and 4\n";
  EXPECT_EQ(findings_with(moe, "/modules/llm/ep", 3),
            "modules.llm.ep: is 3, which does not divide 128 experts" + nearest +
                "modules.llm.ep: is 3, which does not divide dp 8 × cp 1 = 8" + nearest);
  EXPECT_EQ(findings_with(kTp, "/modules/llm/ep", 2), "modules.llm.ep: is 2, but the module has no experts; use 1\n");
  const std::string ulysses = "llama3-8b_cp4_ulysses2";
  EXPECT_EQ(findings_with(ulysses, "/modules/llm/cp_ulysses", 3),
            "modules.llm.cp_ulysses: is 3, which does not divide cp 4; nearest are 2 and 4\n");
  EXPECT_EQ(findings_with(ulysses, "/modules/llm/cp_ulysses", 8),
            "modules.llm.cp_ulysses: is 8, which does not divide cp 4; nearest is 4\n");
}

/// The plan with so many ranks along cp, all of them Ulysses'.
Json with_ulysses(const std::string& name, int64_t tp, int64_t cp) {
  Json json = shipped(name);
  Json& llm = json["modules"]["llm"];
  llm["tp"] = tp;
  llm["cp"] = llm["cp_ulysses"] = cp;
  llm["dp"] = llm["pp"] = 1;
  return json;
}

TEST(CheckPlan, ExpertsOverTensorParallelRanksNeedRowsOfTheirOwn) {
  Plan plan = *read_plan({.source = "plan.json", .root = shipped("qwen3-30b-a3b_zb_h1_ep8")});
  ModulePlan& llm = plan.modules.back();
  const auto message = [&] {
    std::string all;
    for (const Violation& violation : check_plan(plan)) all += violation.field + ": " + violation.message + "\n";
    return all;
  };
  llm.experts_over_tp = true;
  EXPECT_NE(message().find("modules.llm.experts_over_tp: is on, but tp is 1: there is nothing to spread; use false\n"),
            std::string::npos)
      << message();
  llm.tp = 2;
  llm.dp /= 2;
  plan.schedule.microbatches *= 2;
  EXPECT_NE(message().find("modules.llm.experts_over_tp: is on, but sequence_parallel is off"), std::string::npos)
      << message();
  llm.sequence_parallel = true;
  EXPECT_EQ(message(), "") << "ep is now tp times what divides dp and cp";
  llm.ep *= 16;
  EXPECT_NE(message().find("which does not divide tp 2 × dp"), std::string::npos) << message();
  llm.experts_over_tp = false;
  EXPECT_NE(message().find("which does not divide dp"), std::string::npos) << message();
}

TEST(CheckPlan, MacroBatchesHaveWholeSamples) {
  Json json = shipped("qwen2.5-omni-7b_colocated_dp8");
  Json& vision = json["modules"]["vision"];
  const int64_t mbs = json["schedule"]["mbs"].get<int64_t>();
  ASSERT_EQ(mbs, 1);
  vision["mbs_scale"] = "3/2";
  EXPECT_EQ(findings(json),
            "modules.vision.mbs_scale: is 3/2 of mbs 1, but a rank takes whole samples; of what divides mbs, nearest "
            "to 2 is 1\n");
  json["schedule"]["mbs"] = 4;
  json["schedule"]["microbatches"] = json["schedule"]["microbatches"].get<int64_t>() / 4;
  EXPECT_EQ(findings(json), "");
  vision["mbs_scale"] = "1/3";
  EXPECT_EQ(findings(json),
            "modules.vision.mbs_scale: is 1/3 of mbs 4, but a rank takes whole samples; of what divides mbs, nearest "
            "to 3 are 2 and 4\n");
}

TEST(CheckPlan, AnEncoderThatRunsOnDemandStoresNoOrderAndSharesTheLlmsRanks) {
  Json json = shipped("qwen2.5-vl-7b_colocated_fill");
  json["modules"]["vision"]["form"] = "on_demand";
  EXPECT_EQ(findings(json),
            "modules.vision.actions: is given, but only the first encoder that fills stores the planned order\n");
  json["modules"]["vision"]["actions"] = Json::object();
  EXPECT_EQ(findings(json), "");
  EXPECT_EQ(findings_with("qwen2.5-vl-7b_disjoint_stream", "/modules/vision/form", "on_demand"),
            "modules.vision.form: must be stream: the encoder has ranks of its own\n");
}

TEST(CheckPlan, HeadsBoundUlyssesAndARingTakesTheRest) {
  const std::string name = "llama3-8b_cp4_ulysses2";
  EXPECT_NE(
      findings(with_ulysses(name, 1, 64))
          .find("modules.llm.cp_ulysses: is 64, but with tp 1 a rank has as few as 32 of the 32 heads to exchange; "
                "cp_ulysses 32 with a ring of 2 makes cp 64\n"),
      std::string::npos)
      << findings(with_ulysses(name, 1, 64));
  EXPECT_NE(findings(with_ulysses(name, 8, 6)).find("; cp_ulysses 3 with a ring of 2 makes cp 6\n"), std::string::npos)
      << "the largest divisor of cp that four heads a rank allow";
  EXPECT_NE(findings(with_ulysses(name, 64, 2))
                .find("modules.llm.tp: is 64, but there are only 32 heads to share out; tp is at most that\n"),
            std::string::npos);
}

TEST(CheckPlan, SchedulesMustFitTheirChunks) {
  EXPECT_EQ(findings_with("qwen3-8b_zb_v_pp4", "/schedule/name", "1f1b"),
            "modules.llm.vpp: is 2, but 1f1b has one chunk a rank; set it to 1, or use interleaved_1f1b\n");
  EXPECT_EQ(findings_with("qwen2-vl-7b_inline", "/schedule/name", "zb_v"),
            "modules.llm.vpp: is 1, but zb_v has exactly 2 chunks a rank; set it to 2\n");
}

TEST(CheckPlan, AnInlineEncoderEndsBeforeTheLlmTakesItsOutput) {
  const std::string inline_plan = "qwen2-vl-7b_inline";
  EXPECT_EQ(findings(shipped(inline_plan)), "");
  EXPECT_EQ(findings_with(inline_plan, "/modules/vision/layers", {{16}, {16}, {0}, {0}}),
            "modules.vision.layers: end in stage 1, but the llm, which takes their output, begins in stage 0\n");
  EXPECT_EQ(findings_with(inline_plan, "/modules/vision/layers", {{31}, {0}, {0}, {1}}),
            "modules.vision.layers: end in stage 3, but the llm, which takes their output, begins in stage 0\n");
  Json later = shipped(inline_plan);
  later["modules"]["vision"]["layers"] = {{16}, {16}, {0}, {0}};
  later["modules"]["llm"]["layers"] = {{0}, {12}, {8}, {8}};
  EXPECT_EQ(findings(later), "");
}

TEST(CheckPlan, EncodersMustBeWhereTheirPlacementSays) {
  EXPECT_NE(findings_with("qwen2-vl-7b_colocated_before", "/modules/vision/ranks", "0-3")
                .find("a colocated encoder has the llm's ranks, 0-7"),
            std::string::npos);
  EXPECT_NE(findings_with("qwen2.5-vl-7b_disjoint_stream", "/modules/vision/ranks", "7-14")
                .find("is disjoint, but rank 7 is the llm's too"),
            std::string::npos);
  EXPECT_NE(
      findings_with("qwen2.5-vl-7b_disjoint_stream", "/modules/vision/form", "before").find("form: must be stream"),
      std::string::npos);
  EXPECT_NE(findings_with("qwen2-vl-7b_partial", "/modules/vision/ranks", "5-6")
                .find("holds 1 of the 2 ranks of the llm's pipeline rank 2"),
            std::string::npos);
  EXPECT_NE(findings_with("qwen2-vl-7b_inline", "/modules/vision/tp", 1)
                .find("is inline, so ranks, order and degrees must be the llm's (tp 2"),
            std::string::npos);
  EXPECT_NE(findings_with("qwen2-vl-7b_colocated_before", "/modules/vision/form", "fill")
                .find("live_macro_batches: is 0, but fill needs at least 1"),
            std::string::npos);
  Json json = shipped("qwen2-vl-7b_inline");
  json["modules"].erase("vision");
  EXPECT_EQ(findings(json),
            "modules.vision: is missing, but the model qwen2-vl-7b has it; give it ranks and degrees, or plan again\n");
  json = shipped(kTp);
  json["modules"]["audio"] = shipped("qwen2.5-omni-7b_colocated_dp8")["modules"]["audio"];
  EXPECT_NE(findings(json).find("modules.audio: the model llama3-8b has no such module, only llm; remove it"),
            std::string::npos);
}

TEST(CheckPlan, TheStoredOrderOfAFillMustHoldTheScheduleAndRun) {
  const std::string fill = "qwen2.5-vl-7b_colocated_fill";
  const std::string actions = "/modules/vision/actions";
  EXPECT_EQ(findings(shipped(fill)), "");
  EXPECT_NE(findings_with(fill, actions + "/0/0", "0XF0").find("modules.vision.actions.0: '0XF0' is not an action"),
            std::string::npos);
  EXPECT_NE(
      findings_with(fill, actions + "/0/1", "0F1").find("does not hold the llm's actions in the order of its schedule"),
      std::string::npos);
  Json json = shipped(fill);
  json["modules"]["vision"]["actions"].erase("3");
  EXPECT_EQ(findings(json), "modules.vision.actions: has 3 rows, but the pipeline has 4 ranks\n");
  // The first encoder forward moved behind the microbatch that needs it: a deadlock.
  json = shipped(fill);
  Json& row = json["modules"]["vision"]["actions"]["0"];
  ASSERT_EQ(row[0], "0EF0");
  ASSERT_EQ(row[1], "0F0");
  std::swap(row[0], row[1]);
  EXPECT_NE(findings(json).find("schedule: rank 0, action 0: waits for ever"), std::string::npos) << findings(json);
  // One rank makes rows in another order than the llm takes them: it would take the second macro batch's for the first.
  json = shipped(fill);
  Json& last = json["modules"]["vision"]["actions"]["3"];
  ASSERT_EQ(last[1], "0EF1");
  ASSERT_EQ(last[2], "0EF2");
  std::swap(last[1], last[2]);
  EXPECT_NE(findings(json).find("rank 3 sends 0SEND_R2 here: the two ends disagree on the order"), std::string::npos)
      << findings(json);
}

TEST(CheckPlan, StoredActionsOfNoEncoderOrMacroBatchAreRefused) {
  const std::string fill = "qwen2.5-vl-7b_colocated_fill";
  const std::string first = "/modules/vision/actions/0/0";
  EXPECT_EQ(findings_with(fill, first, "9EF0"),
            "modules.vision.actions.0: has 9EF0, but there is only 1 encoder, numbered from 0; correct it\n");
  EXPECT_NE(findings_with(fill, first, "0EF99999999").find("has 0EF99999999, but encoder 0 has only "),
            std::string::npos);
  // Rows from the file are judged however many actions they have.
  Json json = shipped(fill);
  Json& row = json["modules"]["vision"]["actions"]["0"];
  for (int i = 0; i < 2'000'001; ++i) row.push_back("0EF0");
  EXPECT_NE(findings(json).find("comes twice"), std::string::npos);
}

TEST(CheckPlan, ExplicitRowsAreJudgedBeforeEncodersArePlacedIntoThem) {
  for (const char* form : {"before", "on_demand"}) {
    Json json = shipped("qwen2.5-vl-7b_colocated_fill");
    json["modules"]["vision"]["form"] = form;
    json["modules"]["vision"]["actions"] = Json::object();
    json["modules"]["vision"]["live_macro_batches"] = 0;
    Json& schedule = json["schedule"];
    const auto microbatches = schedule["microbatches"].get<int>();
    std::vector<std::string> rows(json["modules"]["llm"]["pp"].get<size_t>());
    for (size_t rank = 0; rank < rows.size(); ++rank) {
      for (int m = 0; m < microbatches; ++m) rows[rank] += fmt::format("{0}F{1} {0}B{1} ", rank, m);
    }
    schedule["name"] = "explicit";
    schedule["rows"] = rows;
    EXPECT_EQ(findings(json), "") << form;
    rows[0].replace(0, 8, "0B0 0F0 ");
    schedule["rows"] = rows;
    EXPECT_EQ(findings(json), "schedule.rows[0], action 1: 0B0 runs before its forward\n") << form;
  }
}

TEST(CheckPlan, MacroBatchesAreBoundedOverAllRows) {
  Plan plan = *read_plan({.source = "plan.json", .root = shipped("qwen2.5-vl-7b_colocated_fill")});
  ASSERT_EQ(plan.llm().pp, 4);
  ASSERT_EQ(plan.llm().dp, 1);
  plan.schedule.microbatches = 1'000'000;
  ModulePlan& vision = plan.modules.front();
  ASSERT_EQ(vision.dp, 4);
  vision.form = EncoderForm::kBefore;
  vision.mbs_parts = 4;
  EXPECT_TRUE(encoder_placements(plan).ok());
  vision.mbs_parts = 8;
  const Result<std::vector<EncoderPlacement>> many = encoder_placements(plan);
  ASSERT_FALSE(many.ok());
  EXPECT_EQ(many.error().message(),
            "modules.vision.mbs_scale: is 1/8, which makes 2,000,000 macro batches on 4 pipeline ranks, at most "
            "4,000,000 together are allowed; use a larger one");
}

TEST(CheckPlan, TextsOfThePlanDoNotBreakLines) {
  const std::vector<Violation> violations = {{"a.b\n", "is [\x1b[31m, tp\ncp]"}, {"c", "x"}};
  EXPECT_EQ(to_error(violations, "are not legal").details, "  a.b\\x0a: is [\\x1b[31m, tp\\x0acp]\n  c: x\n");
  EXPECT_EQ(to_error({violations.front()}, "is not").problem, "is [\\x1b[31m, tp\\x0acp]");
}

/// With these rows instead of a schedule of pp 2 and 16 microbatches.
std::string findings_with_rows(const std::vector<std::string>& rows, int64_t microbatches = 2) {
  Json json = shipped(kTp);
  json["schedule"] = {{"name", "explicit"}, {"mbs", 16 / microbatches}, {"microbatches", microbatches}, {"rows", rows}};
  return findings(json);
}

TEST(CheckPlan, ExplicitRowsMustRunAndFitThePlan) {
  EXPECT_EQ(findings_with_rows({"0F0 0F1 0B0 0B1", "1F0 1B0 1F1 1I1 1W1"}), "");
  EXPECT_EQ(findings_with_rows({"0F0 0B0 0F1 0B1", "1F1 1B1 1F0 1B0"}),
            "schedule.rows[0], action 2: 0B0 waits for ever: the rows deadlock\n");
  EXPECT_EQ(findings_with_rows({"0F0 0F1 0B0", "1F0 1B0 1F1 1B1"}), "schedule.rows[0]: 0B1 is missing\n");
  EXPECT_EQ(findings_with_rows({"0F0 0F1 0B0 0B1", "1F0 1B0 1F1 1I1"}), "schedule.rows[1]: 1W1 is missing\n");
  EXPECT_NE(findings_with_rows({"0F0 0F1 0B0 0B1", "2F0 2B0 2F1 2B1"})
                .find("plan.json: schedule.rows: has a stage 2 but no stage 1"),
            std::string::npos);
  EXPECT_NE(findings_with_rows({"0F0 0F1 0B0 0B1", "1F0 1B0 0F1 1B1"})
                .find("plan.json: schedule.rows[1], action 3: stage 0 is on rank 0 and on rank 1"),
            std::string::npos);
  EXPECT_EQ(findings_with_rows({"0F0 0F1 2F0 2B0 2F1 2B1 0B0 0B1", "1F0 1F1 1B0 1B1"}),
            "modules.llm.layers: must have a row for each of schedule.rows, with an entry for each of its stages: [2, "
            "1]\nmodules.llm.vpp: is 1, but a row of schedule.rows has 2 stages\n");
  EXPECT_EQ(findings_with_rows({"0F0 0B0", "1F0 1B0"}),
            "schedule.rows: have 1 microbatch, but schedule.microbatches is 2\n");
  EXPECT_NE(findings_with_rows({"0F0 0F1 0B0 0B1"}).find("schedule.rows: are 1, but modules.llm.pp is 2\n"),
            std::string::npos);
  EXPECT_EQ(findings_with(kTp, "/schedule/name", "explicit"),
            "schedule.rows: is missing, but schedule.name is explicit; give a row of actions for each pipeline rank\n");
  EXPECT_NE(findings_with(kTp, "/schedule/rows", {"0F0 0B0", "1F0 1B0"})
                .find("schedule.rows: are given, but schedule.name is 'gpipe'; use explicit, or leave the rows out\n"),
            std::string::npos);
}

TEST(CheckPlan, RowsMayLayStagesAnywhere) {
  Json json = shipped(kTp);
  json["schedule"] = {{"name", "explicit"},
                      {"mbs", 8},
                      {"microbatches", 2},
                      {"rows", {"1F0 2F0 2B0 1F1 2F1 2B1 1B0 1B1", "0F0 0F1 0B0 0B1"}}};
  json["modules"]["llm"]["vpp"] = 2;
  json["modules"]["llm"]["layers"] = {{10, 12}, {10}};
  json["modules"]["llm"]["recompute"] = Json::array();
  EXPECT_EQ(findings(json), "");
  const Plan plan = *read_plan({.source = "plan.json", .root = json});
  std::vector<StagePart> parts;
  list_stage_parts(plan, parts);
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_EQ(parts[0].num_layers, 10);
  EXPECT_EQ(parts[2].num_layers, 12);
  EXPECT_TRUE(parts[0].has_entry);
  EXPECT_TRUE(parts[2].has_exit);
  EXPECT_EQ(place_of_stage(plan, 0).rank, 1);
  EXPECT_EQ(read_plan({.source = "plan.json", .root = plan_to_json(plan)})->schedule.rows, plan.schedule.rows);
}

}  // namespace
}  // namespace weft
