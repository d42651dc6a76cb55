#include "weft/plan/module_strategy.h"

#include <gtest/gtest.h>

#include "tests/support/source_tree.h"
#include "weft/base/file.h"
#include "weft/plan/diff.h"
#include "weft/plan/plan_json.h"
#include "weft/program/program_blocks.h"
#include "weft/spec/model_reader.h"

namespace weft::module_strategy_test {
namespace {

const std::string kTp = "llama3-8b_gpipe_tp2_pp2_dp2";

/// A shipped plan of tp 2 whose model is the manual's encoder.
Json encoder_plan(const Json& strategy) {
  const std::filesystem::path tree = source_tree();
  Json json = read_document((tree / ("scenarios/plans/" + kTp + ".json")).string())->root;
  const Json config = {{"model_type", kProgramFamily},
                       {kProgramKey, *read_file(tree / "docs/manual/encoder.txt", 1 << 20)}};
  json["model"] = {{"name", "encoder"}, {"hash", hash_of(config)}, {"config", config}};
  json["modules"]["llm"]["layers"] = {{1}, {1}};
  json["modules"]["llm"].erase("recompute");
  json["modules"]["llm"]["strategy"] = strategy;
  return json;
}

Result<Plan> read(const Json& json) {
  return read_plan({.source = "plan.json", .root = json});
}

std::string refusal(const Json& strategy) {
  const Result<Plan> plan = read(encoder_plan(strategy));
  return plan ? "" : plan.error().message();
}

const Op& op_of(const Plan& plan, const std::string& op) {
  return op_named(plan.model.modules.back().distinct_layers.front(), op);
}

TEST(ModuleStrategy, SaysWhatOperatorsDoAndWhatRanksHold) {
  const Json strategy = {
      {"mesh", {{"tp", 2}}},
      {"blocks", {{"layer", {{"up", {{"tp", "cut b"}}}, {"down", {{"tp", "cut h"}}}, {"n1", {{"tp", "cut h"}}}}}}}};
  const Result<Plan> plan = read(encoder_plan(strategy));
  ASSERT_TRUE(plan.ok()) << plan.error().message();
  const Result<Plan> usual = read(encoder_plan(Json::object()));
  ASSERT_TRUE(usual.ok()) << usual.error().message();
  // The usual way cuts the wide rows: the first product by its outputs, the second by its inputs.
  EXPECT_EQ(op_of(*usual, "up").held, (HeldWeights{.weight = HeldCut{.dim = 0}}));
  EXPECT_EQ(op_of(*usual, "down").held, (HeldWeights{.weight = HeldCut{.dim = 1}}));
  EXPECT_EQ(op_of(*usual, "n1").held, HeldWeights{});
  EXPECT_EQ(op_of(*plan, "up").held, HeldWeights{});
  EXPECT_EQ(op_of(*plan, "down").held, (HeldWeights{.weight = HeldCut{.dim = 0}}));
  EXPECT_EQ(op_of(*plan, "n1").held, (HeldWeights{.weight = HeldCut{.dim = 0}, .bias = HeldCut{.dim = 0}}));
  // What no entry names stays as it is.
  EXPECT_EQ(op_of(*plan, "qkv").held, op_of(*usual, "qkv").held);
  EXPECT_EQ(to_json(plan->llm().strategy), strategy);
  EXPECT_EQ(entries_of(plan->model.modules.back(), usual->model.modules.back()),
            (BlockEntries{{"layer",
                           {{.pattern = "n1", .words = {{"tp", "cut h"}}},
                            {.pattern = "up", .words = {{"tp", "cut b"}}},
                            {.pattern = "down", .words = {{"tp", "cut h"}}}}}}));
}

TEST(ModuleStrategy, IsWrittenAsItWasReadAndCompared) {
  const Json strategy = {{"blocks", {{"exit", {{"logits", {{"tp", "cut b"}}}}}}}};
  const Plan plan = *read(encoder_plan(strategy)), usual = *read(encoder_plan(Json::object()));
  const std::string text = plan_to_text(plan);
  EXPECT_EQ(plan_to_text(*read(Json::parse(text))), text);
  EXPECT_EQ(plan_to_json(usual)["modules"]["llm"].count("strategy"), 0);
  const std::vector<Difference> differences = diff_plans(usual, plan);
  ASSERT_EQ(differences.size(), 1);
  EXPECT_EQ(differences[0].field, "modules.llm.strategy");
}

TEST(ModuleStrategy, WhatIsNotForThePlanIsRefusedByField) {
  const auto expect = [](const Json& strategy, const std::string& says) {
    EXPECT_NE(refusal(strategy).find("plan.json: modules.llm.strategy" + says), std::string::npos) << refusal(strategy);
  };
  const auto layer = [](const Json& entries) { return Json{{"blocks", {{"layer", entries}}}}; };
  expect({{"mesh", {{"tp", 4}}}}, ".mesh: is tp=4, but the module has tp 2");
  expect({{"mesh", {{"tp", 2}, {"dp", 2}}}}, ".mesh: is tp=2,dp=2, but the module has tp 2");
  expect({{"mesh", 2}}, ".mesh: is the number 2, expected are axes with their sizes");
  expect({{"blocks", {{"layers", {{"up", "b"}}}}}}, ".blocks.layers: is no kind of block of the module. Known are");
  expect(layer({{"upp", "b"}}), ".blocks.layer.upp: no operator of encoder fits the pattern");
  expect(layer({{"up", "z"}}), ".blocks.layer.up: up: 'z' is no choice of the rule");
  expect(layer({{"up", {{"dp", "b"}}}}), ".blocks.layer.up: the mesh tp 2 has no axis 'dp'");
  expect(layer({{"up", "b"}, {"u*", "f"}}), ".blocks.layer.u*: up is pinned to 'cut f' on tp, but 'up' pins it");
  expect(layer({{"up", {1}}}), ".blocks.layer: 'up' has a list, expected is a word");
  expect({{"block", Json::object()}}, ".block: is not a known field");
  Json alone = encoder_plan(layer({{"up", "b"}}));
  alone["modules"]["llm"]["tp"] = 1;
  EXPECT_NE(read(alone).error().message().find("modules.llm.strategy: is given, but tp is 1"), std::string::npos);
}

/// A shipped plan with a strategy for a module.
Json family_plan(const std::string& plan, const Json& strategy, const std::string& module = "llm") {
  Json json = read_document((source_tree() / ("scenarios/plans/" + plan + ".json")).string())->root;
  json["modules"][module]["strategy"] = strategy;
  return json;
}

TEST(ModuleStrategy, LayersOfFamiliesHaveOne) {
  const Json strategy = {
      {"blocks", {{"layer", {{"mlp.down", {{"tp", "cut s"}}}, {"attention.qkv", {{"tp", "same"}}}}}}}};
  const Result<Plan> plan = read(family_plan(kTp, strategy));
  ASSERT_TRUE(plan.ok()) << plan.error().message();
  // Queries, keys and values lie in groups of heads, a gate beside what it opens on each rank.
  EXPECT_EQ(op_of(*plan, "attention.qkv").held, (HeldWeights{.shares = 8}));
  EXPECT_EQ(op_of(*plan, "attention.out").held, (HeldWeights{.weight = HeldCut{.dim = 1, .unit = 512}}));
  EXPECT_EQ(op_of(*plan, "mlp.gate_up").held, (HeldWeights{.weight = HeldCut{.dim = 0, .unit = 14336}, .shares = 2}));
  EXPECT_EQ(op_of(*plan, "mlp.down").held, HeldWeights{});
  EXPECT_EQ(op_of(*plan, "mlp.norm").held, HeldWeights{});
  const Module& llm = plan->model.modules.back();
  EXPECT_EQ(llm.entry.program, nullptr);
  EXPECT_FALSE(llm.entry.ops.front().held.has_value());
  EXPECT_EQ(to_json(plan->llm().strategy), strategy);
  // A kind without entries runs as a program, with the usual choices.
  const Result<Plan> usual = read(family_plan(kTp, {{"blocks", {{"layer", Json::object()}}}}));
  ASSERT_TRUE(usual.ok()) << usual.error().message();
  EXPECT_EQ(op_of(*usual, "attention.qkv").held, (HeldWeights{.weight = HeldCut{.dim = 0, .unit = 768}, .shares = 8}));
}

TEST(ModuleStrategy, LayersWithExpertsHaveOneForTheirAttention) {
  Json json =
      family_plan("qwen3-30b-a3b_zb_h1_ep8", {{"blocks", {{"moe layer", {{"attention.out", {{"tp", "cut s"}}}}}}}});
  json["modules"]["llm"]["tp"] = 2;
  const Result<Plan> plan = read(json);
  ASSERT_TRUE(plan.ok()) << plan.error().message();
  EXPECT_EQ(op_of(*plan, "attention.qkv").held, (HeldWeights{.weight = HeldCut{.dim = 0, .unit = 1280}, .shares = 4}));
  EXPECT_EQ(op_of(*plan, "attention.out").held, HeldWeights{});
  for (const char* op : {"mlp.norm", "moe.router", "mlp.gate_up", "mlp.down"})
    EXPECT_FALSE(op_of(*plan, op).held.has_value()) << op;
}

TEST(ModuleStrategy, WhatFamiliesCannotDoIsRefusedByField) {
  const auto expect = [](const Json& json, const std::string& says) {
    const Result<Plan> plan = read(json);
    const std::string message = plan ? "" : plan.error().message();
    EXPECT_NE(message.find("plan.json: modules." + says), std::string::npos) << message;
  };
  const auto entries = [](const std::string& kind, const Json& words) { return Json{{"blocks", {{kind, words}}}}; };
  expect(family_plan(kTp, entries("layer", {{"up", "b"}})), "llm.strategy.blocks.layer.up: no operator of layer fits");
  expect(family_plan(kTp, entries("entry", {{"*", "b"}})),
         "llm.strategy.blocks.entry: is an end of the module, and only its layers have strategies. Known are layer");
  expect(family_plan(kTp, entries("layre", {{"*", "b"}})), "llm.strategy.blocks.layre: is no kind of block");
  expect(family_plan(kTp, entries("layer", {{"mlp.down", "k"}})), "llm.strategy.blocks.layer.mlp.down: ");
  expect(family_plan(kTp, {{"mesh", {{"tp", 4}}}}), "llm.strategy.mesh: is tp=4, but the module has tp 2");
  Json spread = family_plan(kTp, entries("layer", {{"*", "s"}}));
  spread["modules"]["llm"]["cp"] = 2;
  expect(spread,
         "llm.strategy.blocks.layer.attention.core: is 'cut s', but cp is 2, and attention has all rows of its "
         "context-parallel rank on every tensor-parallel rank that has heads. Divide its heads ('cut k')");
  Json experts = family_plan("qwen3-30b-a3b_zb_h1_ep8", entries("moe layer", {{"mlp.down", "s"}}));
  experts["modules"]["llm"]["tp"] = 2;
  expect(experts,
         "llm.strategy.blocks.moe layer.mlp.down: fits mlp.down, an operator of the half of the layer that has "
         "experts, which strategies do not divide. Name attention.norm, attention.qkv");
  const auto encoder = [&](const std::string& kind, const Json& words) {
    return family_plan("qwen2-vl-7b_inline", entries(kind, words), "vision");
  };
  Json alone = encoder("layer", {{"mlp.down", "s"}});
  alone["modules"]["vision"]["tp"] = 1;
  expect(alone, "vision.strategy: is given, but tp is 1");
  expect(encoder("entry", {{"*", "s"}}), "vision.strategy.blocks.entry: is an end of the module");
  expect(encoder("exit", {{"*", "s"}}), "vision.strategy.blocks.exit: is an end of the module");
  expect(encoder("layer", {{"mlp.gate_up", "s"}}),
         "vision.strategy.blocks.layer.mlp.gate_up: no operator of layer fits");
  Json apart = encoder("layer", {{"attention.core", "s"}});
  apart["modules"]["vision"]["cp"] = 2;
  expect(apart, "vision.strategy.blocks.layer.attention.core: is 'cut s', but cp is 2");
}

TEST(ModuleStrategy, WithContextParallelismAllButAttentionMayCutRows) {
  const Json strategy = {{"blocks",
                          {{"layer",
                            {{"attention.norm", {{"tp", "cut s"}}},
                             {"attention.core", {{"tp", "same"}}},
                             {"mlp.*", {{"tp", "cut s"}}}}}}}};
  for (const bool divides_rows : {false, true}) {
    Json json = family_plan(kTp, strategy);
    json["modules"]["llm"]["cp"] = 2;
    json["modules"]["llm"]["sequence_parallel"] = divides_rows;
    const Result<Plan> plan = read(json);
    ASSERT_TRUE(plan.ok()) << plan.error().message();
    EXPECT_EQ(op_of(*plan, "mlp.down").held, HeldWeights{});
  }
}

TEST(ModuleStrategy, LayersOfEncodersHaveOne) {
  const Json strategy = {{"blocks", {{"layer", {{"mlp.down", {{"tp", "cut s"}}}}}}}};
  const Result<Plan> plan = read(family_plan("qwen2-vl-7b_inline", strategy, "vision"));
  ASSERT_TRUE(plan.ok()) << plan.error().message();
  const Module& vision = *plan->model.find(ModuleKind::kVision);
  const Block& layer = vision.distinct_layers.front();
  EXPECT_EQ(op_named(layer, "mlp.down").held, HeldWeights{});
  EXPECT_EQ(op_named(layer, "mlp.up").held->weight->dim, 0);
  EXPECT_EQ(vision.entry.program, nullptr);
  EXPECT_EQ(vision.exit.program, nullptr);
  for (const Block& other : plan->model.modules.back().distinct_layers) EXPECT_EQ(other.program, nullptr);
}

}  // namespace
}  // namespace weft::module_strategy_test
