#include "weft/meaning/stage_parts.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "tests/support/cost/example_plan.h"
#include "tests/support/source_tree.h"
#include "weft/plan/plan_json.h"

namespace weft {
namespace {

std::string text_of(const StagePart& part) {
  return std::to_string(part.stage) + ": " + std::to_string(part.first_layer) + "+" + std::to_string(part.num_layers) +
         (part.has_entry ? " entry" : "") + (part.has_exit ? " exit" : "");
}

std::vector<std::string> texts(const Plan& plan) {
  std::vector<StagePart> parts(3);  // what is there is cleared
  list_stage_parts(plan, parts);
  std::vector<std::string> result;
  for (const StagePart& part : parts) {
    result.push_back(std::string(name_of(plan.modules[static_cast<size_t>(part.module)].kind)) + " " + text_of(part));
  }
  return result;
}

using Texts = std::vector<std::string>;

TEST(StageParts, UnevenLayersLieInStageOrder) {
  const Plan plan = text_plan(gpt_model({.layers = 10}), ideal_cluster(), {.pp = 4}, 128, {}, {{1}, {5}, {4}, {0}});
  EXPECT_EQ(texts(plan), (Texts{"llm 0: 0+1 entry", "llm 1: 1+5", "llm 2: 6+4", "llm 3: 10+0 exit"}));
}

TEST(StageParts, ChunksLoopOverTheRanks) {
  const Plan plan = text_plan(gpt_model({.layers = 10}), ideal_cluster(), {.pp = 2, .vpp = 2}, 128,
                              {.name = "interleaved_1f1b"}, {{1, 2}, {3, 4}});
  EXPECT_EQ(texts(plan), (Texts{"llm 0: 0+1 entry", "llm 1: 1+3", "llm 2: 4+2", "llm 3: 6+4 exit"}));
  EXPECT_EQ(place_of_stage(plan, 2).rank, 0);
  EXPECT_EQ(place_of_stage(plan, 3).rank, 1);
}

TEST(StageParts, VPlacementComesBackToTheFirstRank) {
  const Plan plan = text_plan(gpt_model({.layers = 10}), ideal_cluster(), {.pp = 2, .vpp = 2}, 128, {.name = "zb_v"},
                              {{1, 2}, {3, 4}});
  EXPECT_EQ(texts(plan), (Texts{"llm 0: 0+1 entry", "llm 1: 1+3", "llm 2: 4+4", "llm 3: 8+2 exit"}));
  EXPECT_EQ(place_of_stage(plan, 2).rank, 1);
  EXPECT_EQ(place_of_stage(plan, 3).rank, 0);
}

Plan inline_plan(const std::vector<std::vector<int64_t>>& vision, const std::vector<std::vector<int64_t>>& llm) {
  Plan plan = *read_plan_file(source_tree().string() + "/scenarios/plans/qwen2-vl-7b_inline.json");
  plan.modules[0].layers = vision;
  plan.modules[1].layers = llm;
  return plan;
}

TEST(StageParts, AnInlineEncoderHasItsEntryAndExitWhereItsLayersAre) {
  EXPECT_EQ(texts(inline_plan({{32}, {0}, {0}, {0}}, {{4}, {8}, {8}, {8}})),
            (Texts{"vision 0: 0+32 entry exit", "llm 0: 0+4 entry", "llm 1: 4+8", "llm 2: 12+8", "llm 3: 20+8 exit"}));
  // The llm's table lies where its first layer is, behind the encoder.
  EXPECT_EQ(
      texts(inline_plan({{20}, {12}, {0}, {0}}, {{0}, {4}, {12}, {12}})),
      (Texts{"vision 0: 0+20 entry", "vision 1: 20+12 exit", "llm 1: 0+4 entry", "llm 2: 4+12", "llm 3: 16+12 exit"}));
}

TEST(StageParts, EncodersBesideThePipelineAreNotInIt) {
  const Plan plan = *read_plan_file(source_tree().string() + "/scenarios/plans/qwen2-vl-7b_partial.json");
  for (const std::string& text : texts(plan)) EXPECT_EQ(text.substr(0, 3), "llm") << text;
}

TEST(StageParts, RecomputationIsThatOfItsRankAndChunk) {
  Plan plan = text_plan(gpt_model({.layers = 8}), ideal_cluster(), {.pp = 2}, 128);
  Recompute scattered;
  scattered.add(BlockRecompute::kKeep, 2);
  scattered.add(BlockRecompute::kAttention, 1);
  plan.modules[0].recompute = {{RecomputeCounts{.full = 1, .selective = 2}}, {scattered}};
  std::vector<StagePart> parts;
  list_stage_parts(plan, parts);
  const auto runs_of = [&](size_t part) {
    return std::vector<RecomputeRun>(parts[part].recompute.begin(), parts[part].recompute.end());
  };
  EXPECT_EQ(runs_of(0), (std::vector<RecomputeRun>{{BlockRecompute::kFull, 1}, {BlockRecompute::kAttention, 2}}));
  EXPECT_EQ(runs_of(1), (std::vector<RecomputeRun>{{BlockRecompute::kKeep, 2}, {BlockRecompute::kAttention, 1}}));
}

}  // namespace
}  // namespace weft
