#include "tests/support/meaning/random_plan.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <set>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/support/draws.h"
#include "tests/support/source_tree.h"
#include "weft/meaning/check.h"
#include "weft/meaning/plan_schedule.h"
#include "weft/plan/plan_json.h"
#include "weft/schedule/lowering.h"
#include "weft/schedule/step_end.h"
#include "weft/schedule/validate.h"
#include "weft/spec/model_reader.h"

namespace weft {
namespace {

Model tiny(const std::string& fixture) {
  return *read_model_file(source_tree().string() + "/tests/parity/fixtures/" + fixture);
}

void note(const Plan& plan, std::map<std::string, std::set<std::string>>& seen) {
  static const std::vector<std::string> kPlacements = {"base", "inline", "colocated", "disjoint", "partial"};
  seen["schedule"].insert(plan.schedule.name);
  seen["mbs"].insert(std::to_string(plan.schedule.mbs));
  seen["balance"].insert(std::to_string(static_cast<int>(plan.balance)));
  seen["rules"].insert(std::to_string(plan.trainable.size()));
  seen["frozen"].insert(std::to_string(plan.workload.frozen.size()));
  for (const ModulePlan& m : plan.modules) {
    const std::string name = m.is_encoder() ? "encoder " : "llm ";
    const auto add = [&](const char* what, int64_t value) { seen[name + what].insert(std::to_string(value)); };
    add("tp", m.tp);
    add("cp", m.cp);
    add("cp_ulysses", m.cp_ulysses);
    add("pp", m.pp);
    add("vpp", m.vpp);
    add("dp", m.dp);
    add("ep", m.ep);
    add("zero", m.zero);
    add("sequence_parallel", m.sequence_parallel ? 1 : 0);
    add("experts over tp", m.experts_over_tp ? 1 : 0);
    add("starts at rank 0", m.ranks.front() == 0 ? 1 : 0);
    for (size_t rank = 0; rank < m.layers.size(); ++rank) {
      for (size_t chunk = 0; chunk < m.layers[rank].size(); ++chunk) {
        add("blocks of a chunk", m.layers[rank][chunk]);
        add("recomputed whole", m.recompute[rank][chunk].count(BlockRecompute::kFull));
        add("recomputed in part", m.recompute[rank][chunk].count(BlockRecompute::kAttention));
      }
    }
    if (!m.is_encoder()) continue;
    const std::string placement = kPlacements[static_cast<size_t>(m.placement)];
    seen["placement"].insert(placement);
    if (m.is_in_pipeline()) continue;
    seen["form"].insert(placement + " " + name_of(m.form));
    seen[placement + " tp"].insert(std::to_string(m.tp));
    seen[placement + " cp"].insert(std::to_string(m.cp));
    seen[placement + " pp"].insert(std::to_string(m.pp));
    add("mbs_scale", m.mbs_scale);
    add("mbs_parts", m.mbs_parts);
    add("from inputs", m.recompute_from_inputs ? 1 : 0);
    add("live", m.live_macro_batches);
  }
}

std::set<std::string> numbers(std::initializer_list<int> values) {
  std::set<std::string> texts;
  for (const int value : values) texts.insert(std::to_string(value));
  return texts;
}

TEST(RandomPlan, AllAreLegalRunWithoutADeadlockAndLeaveNothingOut) {
  const std::vector<Model> models = {tiny("qwen2_5_omni"), tiny("qwen2_vl_untied"), tiny("qwen3_moe_norm")};
  std::map<std::string, std::set<std::string>> seen;
  std::set<std::string> settings;
  constexpr uint64_t kSeeds = 2000;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    // Half of them with two encoders.
    const Model& model = models[seed % 2 == 0 ? 0 : 1 + seed / 2 % 2];
    const Plan plan = random_plan(model, seed);
    const std::string text = settings_text(plan);
    SCOPED_TRACE(fmt::format("seed {}: {}", seed, text));
    const std::vector<Violation> violations = check_plan(plan);
    ASSERT_TRUE(violations.empty()) << violations.front().field << ": " << violations.front().message;
    const Result<Schedule> schedule = schedule_of(plan);
    ASSERT_TRUE(schedule.ok()) << schedule.error().message();
    const Result<Schedule> lowered = lower_schedule(with_step_end(*schedule));
    ASSERT_TRUE(lowered.ok()) << lowered.error().message();
    const auto problem = find_problem(*lowered);
    ASSERT_FALSE(problem.has_value()) << problem->message;
    ASSERT_TRUE(std::all_of(text.begin(), text.end(), [](char c) { return std::isalnum(c) != 0 || c == '_'; }));
    settings.insert(text);
    note(plan, seen);
  }
  EXPECT_GT(settings.size(), kSeeds * 9 / 10) << "plans differ, and so do their texts";
  EXPECT_EQ(seen["placement"], (std::set<std::string>{"inline", "colocated", "disjoint", "partial"}));
  EXPECT_EQ(seen["form"],
            (std::set<std::string>{"colocated before", "colocated fill", "disjoint stream", "partial before",
                                   "partial fill", "colocated on_demand", "partial on_demand"}));
  EXPECT_EQ(seen["schedule"],
            (std::set<std::string>{"gpipe", "1f1b", "interleaved_1f1b", "zb_h1", "zb_v", "explicit"}));
  EXPECT_EQ(seen["mbs"], numbers({1, 2}));
  EXPECT_EQ(seen["balance"], numbers({0, 1, 2, 3}));
  EXPECT_EQ(seen["frozen"], numbers({0, 1, 2}));
  EXPECT_EQ(seen["rules"], numbers({0, 1, 2, 3}));
  for (const std::string module : {"llm ", "encoder "}) {
    SCOPED_TRACE(module);
    EXPECT_EQ(seen[module + "zero"], numbers({0, 1, 2, 3}));
    EXPECT_EQ(seen[module + "sequence_parallel"], numbers({0, 1}));
    EXPECT_EQ(seen[module + "starts at rank 0"], numbers({0, 1}));
    for (const char* recomputed : {"recomputed whole", "recomputed in part", "blocks of a chunk"})
      EXPECT_GT(seen[module + recomputed].size(), 1u) << recomputed;
    for (const char* degree : {"tp", "cp", "cp_ulysses", "pp", "dp"}) {
      for (const char* value : {"1", "2"}) EXPECT_TRUE(seen[module + degree].contains(value)) << degree << value;
    }
    for (const char* value : {"4", "8"}) {
      EXPECT_TRUE(seen[module + "cp"].contains(value)) << value;
      EXPECT_TRUE(seen[module + "dp"].contains(value)) << value;
    }
  }
  EXPECT_EQ(seen["llm vpp"], numbers({1, 2, 3}));
  EXPECT_TRUE(seen["llm ep"].contains("2"));
  EXPECT_EQ(seen["llm experts over tp"], numbers({0, 1}));
  EXPECT_EQ(seen["encoder mbs_scale"], numbers({1, 2, 3, 4}));
  EXPECT_EQ(seen["encoder mbs_parts"], numbers({1, 2}));
  EXPECT_EQ(seen["encoder from inputs"], numbers({0, 1}));
  EXPECT_GT(seen["encoder live"].size(), 3u);
  for (const char* placement : {"colocated", "disjoint", "partial"}) {
    EXPECT_TRUE(seen[std::string(placement) + " tp"].contains("2")) << placement;
    EXPECT_TRUE(seen[std::string(placement) + " cp"].contains("2")) << placement;
  }
  EXPECT_TRUE(seen["disjoint pp"].contains("2"));
}

TEST(RandomPlan, ASeedGivesThePlanAgainAndADocumentKeepsIt) {
  const Model model = tiny("qwen2_5_omni");
  for (uint64_t seed = 0; seed < draws(uint64_t{50}); ++seed) {
    const std::string text = plan_to_text(random_plan(model, seed));
    EXPECT_EQ(plan_to_text(random_plan(model, seed)), text);
    const Result<Plan> read = read_plan({.source = "drawn", .root = Json::parse(text)});
    ASSERT_TRUE(read.ok()) << read.error().message();
    EXPECT_EQ(plan_to_text(*read), text);
  }
}

TEST(RandomPlan, WhatASpaceLeavesOutIsNotDrawn) {
  const RandomPlanSpace space{.world_size = 4,
                              .placements = {ModulePlacement::kColocated},
                              .forms = {EncoderForm::kBefore},
                              .schedules = {"1f1b"},
                              .zeros = {1},
                              .most_cp = 1,
                              .most_mbs = 1,
                              .allows_recompute = false,
                              .allows_frozen = false,
                              .allows_rules = false,
                              .allows_balance = false,
                              .allows_empty_stages = false,
                              .allows_any_axis_order = false};
  const Model model = tiny("qwen2_5_omni");
  for (uint64_t seed = 0; seed < draws(uint64_t{100}); ++seed) {
    const Plan plan = random_plan(model, seed, space);
    EXPECT_EQ(plan.world_size, 4);
    EXPECT_EQ(plan.schedule.name, "1f1b");
    EXPECT_TRUE(plan.workload.frozen.empty());
    EXPECT_TRUE(plan.trainable.empty());
    EXPECT_EQ(plan.balance, Balance::kNone);
    for (const ModulePlan& m : plan.modules) {
      EXPECT_EQ(m.cp, 1);
      EXPECT_EQ(m.zero, 1);
      EXPECT_EQ(m.axis_order.front(), "tp");
      for (const auto& row : m.layers) EXPECT_GT(row.front(), 0);
      for (const auto& row : m.recompute) EXPECT_EQ(row.front(), Recompute{});
      if (!m.is_encoder()) continue;
      EXPECT_EQ(m.placement, ModulePlacement::kColocated);
      EXPECT_EQ(m.form, EncoderForm::kBefore);
    }
  }
}

}  // namespace
}  // namespace weft
