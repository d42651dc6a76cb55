#include "weft/meaning/trainable.h"

#include <gtest/gtest.h>

#include "tests/support/source_tree.h"
#include "weft/meaning/check.h"
#include "weft/plan/plan_json.h"
#include "weft/program/name_weights.h"
#include "weft/spec/scenario.h"

namespace weft::trainable_test {
namespace {

Plan shipped_with(const std::string& name, std::vector<TrainRule> rules) {
  Plan plan = *read_plan_file(source_tree() / "scenarios/plans" / (name + ".json"));
  plan.trainable = std::move(rules);
  return plan;
}

std::string found(const Plan& plan) {
  std::string text;
  for (const Violation& violation : check_plan(plan)) text += violation.field + ": " + violation.message + "\n";
  return text;
}

const std::string kVision = "qwen2-vl-7b_inline";
const std::vector<TrainRule> kMergerAlone = {{"visual.*", false}, {"visual.merger.*", true}};

TEST(TrainRules, PatternsAreOfAnyLettersOrOne) {
  for (const auto& [text, pattern] : {std::pair{"visual.merger.mlp.0.bias", "visual.merger.*"},
                                      {"abc", "abc"},
                                      {"abc", "a?c"},
                                      {"abc", "***c"},
                                      {"a.b.a.b.c", "*a.b.c"},
                                      {"", "*"}})
    EXPECT_TRUE(fits_pattern(text, pattern)) << text << " " << pattern;
  for (const auto& [text, pattern] : {std::pair{"visual.merger", "visual.merger.*"},
                                      {"abc", "ab"},
                                      {"abc", "?abc"},
                                      {"abc", "a?"},
                                      {"", "?"},
                                      {"xabc", "abc*"}})
    EXPECT_FALSE(fits_pattern(text, pattern)) << text << " " << pattern;
}

TEST(TrainRules, LaterOnesWinAndFrozenModulesComeFirst) {
  Plan plan = shipped_with(kVision, kMergerAlone);
  const Trainable trainable(plan);
  EXPECT_FALSE(trainable.is_trained(ModuleKind::kVision, "visual.blocks.3.attn.qkv.weight"));
  EXPECT_TRUE(trainable.is_trained(ModuleKind::kVision, "visual.merger.mlp.0.weight"));
  EXPECT_TRUE(trainable.is_trained(ModuleKind::kLlm, "model.norm.weight"));
  Plan frozen = shipped_with(kVision, {{"visual.merger.*", true}});
  frozen.workload.frozen = {ModuleKind::kVision};
  for (const char* name : {"visual.patch_embed.proj.weight", "visual.merger.ln_q.bias"})
    EXPECT_EQ(Trainable(frozen).is_trained(ModuleKind::kVision, name), trainable.is_trained(ModuleKind::kVision, name));
}

TEST(TrainRules, GradientsReachExpertsInEveryMicrobatchAlikeUnlessExpertsLieBeforeAllThatIsTrained) {
  const Scenarios scenarios(source_tree() / "scenarios");
  Plan plan{.model = *scenarios.model("qwen3-vl-30b-a3b")};
  const auto is_alike = [&](std::vector<ModuleKind> frozen, std::vector<TrainRule> rules) {
    plan.workload.frozen = std::move(frozen);
    plan.trainable = std::move(rules);
    return Trainable(plan).reaches_experts_alike();
  };
  const TrainRule no_llm{"model.language_model.*", false};
  EXPECT_TRUE(is_alike({}, {}));
  EXPECT_TRUE(is_alike({ModuleKind::kVision}, {}));
  EXPECT_TRUE(is_alike({ModuleKind::kVision, ModuleKind::kLlm}, {}));
  // Microbatches without media need no backward of the llm at all.
  EXPECT_FALSE(is_alike({ModuleKind::kLlm}, {}));
  EXPECT_FALSE(is_alike({}, {no_llm, {"model.language_model.layers.7.*", true}}));
  // Attention comes before the experts of its layer.
  EXPECT_TRUE(is_alike({}, {no_llm, {"model.language_model.layers.*.self_attn.*", true}}));
  EXPECT_FALSE(is_alike({}, {no_llm, {"model.language_model.layers.*.mlp.experts.*", true}}));
}

TEST(TrainRules, TheBackwardGoesAsFarAsATrainedWeightNeeds) {
  const Plan plan = shipped_with(kVision, kMergerAlone);
  const Trainable trainable(plan);
  const int64_t merger = num_blocks(*plan.model.find(ModuleKind::kVision)) - 1;
  EXPECT_EQ(trainable.first_trained(ModuleKind::kVision), merger);
  EXPECT_FALSE(trainable.backward_of(ModuleKind::kVision, merger - 1).runs());
  EXPECT_TRUE(trainable.backward_of(ModuleKind::kVision, merger).weights);
  EXPECT_FALSE(trainable.backward_of(ModuleKind::kVision, merger).inputs);
  // What the merger needs comes through a language model that is not trained.
  Plan merger_only = plan;
  merger_only.trainable.insert(merger_only.trainable.begin(), {"*", false});
  EXPECT_FALSE(Trainable(merger_only).backward_of(ModuleKind::kLlm, 5).weights);
  EXPECT_TRUE(Trainable(merger_only).backward_of(ModuleKind::kLlm, 5).inputs);
  // Only the last layers of a text model.
  const Plan last = shipped_with("llama3-8b_zero3_dp8", {{"*", false}, {"model.layers.31.mlp.*", true}});
  EXPECT_FALSE(Trainable(last).backward_of(ModuleKind::kLlm, 31).runs());
  EXPECT_TRUE(Trainable(last).backward_of(ModuleKind::kLlm, 32).weights);
  EXPECT_FALSE(Trainable(last).backward_of(ModuleKind::kLlm, 32).inputs);
  EXPECT_TRUE(Trainable(last).backward_of(ModuleKind::kLlm, 33).inputs) << "the head is behind it";
  EXPECT_FALSE(Trainable(last).backward_of(ModuleKind::kLlm, 33).weights);
}

TEST(TrainRules, ElementsAreThoseOfTheTrainedWeights) {
  const Plan plan = shipped_with("llama3-8b_zero3_dp8", {{"*", false}, {"*.mlp.down_proj.weight", true}});
  const LocalParameters trained = Trainable(plan).trained_parameters(ModuleKind::kLlm, 7, {.tp = 2});
  EXPECT_EQ(trained.dense, 14336 / 2 * 4096);
  EXPECT_EQ(trained.expert, 0);
  EXPECT_EQ(Trainable(plan).trained_parameters(ModuleKind::kLlm, 0, {}).total(), 0);
}

TEST(TrainRules, WhatFitsNothingOrLiesTogetherIsNamed) {
  EXPECT_EQ(found(shipped_with(kVision, kMergerAlone)), "");
  EXPECT_EQ(found(shipped_with(kVision, {{"visual.*", false}, {"visual.merge.*", true}})),
            "trainable[1].weights: is 'visual.merge.*', which fits the name of no weight. Did you mean "
            "'visual.merger.*'?\n");
  EXPECT_NE(found(shipped_with(kVision, {{"zzz", false}})).find("fits the name of no weight. Names are like 'visual."),
            std::string::npos);
  EXPECT_EQ(found(shipped_with("llama3-8b_zero3_dp8", {{"*.q_proj.weight", false}})),
            "trainable: model.layers.0.self_attn.k_proj.weight is trained and "
            "model.layers.0.self_attn.q_proj.weight is not, but they are one matrix here; give both the same\n");
  EXPECT_EQ(found(shipped_with("llama3-8b_zero3_dp8", {{"*", false}})),
            "trainable: leaves nothing to train; give some weights \"train\": true\n");
}

TEST(TrainRules, AreReadAndWritten) {
  const Plan plan = shipped_with(kVision, kMergerAlone);
  const Json json = plan_to_json(plan);
  EXPECT_EQ(json["trainable"], Json::parse(R"([{"weights": "visual.*", "train": false},
                                               {"weights": "visual.merger.*", "train": true}])"));
  EXPECT_EQ(read_plan({.source = "plan.json", .root = json})->trainable, plan.trainable);
  Json bad = json;
  bad["trainable"][1].erase("train");
  EXPECT_NE(read_plan({.source = "plan.json", .root = bad}).error().message().find("trainable[1].train: is missing"),
            std::string::npos);
  bad["weft_plan"] = 1;
  EXPECT_FALSE(read_plan({.source = "plan.json", .root = bad}).ok()) << "version 1 has no rules";
}

}  // namespace
}  // namespace weft::trainable_test
