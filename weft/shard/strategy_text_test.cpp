#include "weft/shard/strategy_text.h"

#include <gtest/gtest.h>

#include "tests/support/source_tree.h"
#include "weft/base/units.h"
#include "weft/program/block_program.h"
#include "weft/program/divide_repeats.h"
#include "weft/program/program_text.h"
#include "weft/shard/shard_search.h"
#include "weft/spec/scenario.h"

namespace weft {
namespace {

struct Setting {
  Program program;
  ShardSetting setting;

  ShardProblem problem(const ShardLimits& limits) const { return *ShardProblem::create(program, setting, limits); }
};

Setting llama() {
  const Scenarios scenarios(source_tree() / "scenarios");
  const Cluster cluster = *scenarios.cluster("dgx_h100", 8);
  const Model model = *scenarios.model("llama3-8b");
  return {
      .program = *program_of(*model.find(ModuleKind::kLlm), {.samples = 8, .rows = 4096}, "llama"),
      .setting = {.cluster = cluster, .links = *AxisLinks::create({{"tp", 8}, {"dp", 8}}, cluster), .microbatches = 8}};
}

TEST(StrategyText, IsReadBackToTheSameStrategyAlsoWhereLayersDiffer) {
  Setting given = llama();
  const ShardProblem problem = given.problem(ShardLimits::none(given.program, 2));
  for (const double memory_gib : {0.0, 31.5, 8.2}) {
    ShardSearchOptions options;
    if (memory_gib > 0) options.memory_bytes = memory_gib * kGiB;
    const ShardSolution found = *search_strategy(problem, options);
    const std::string text = strategy_text(problem, found.assignment);
    const StrategyFile file = *read_strategy(*parse_document(text, "written.yaml", Syntax::kYaml));
    EXPECT_EQ(file.layers.empty(), memory_gib == 0);
    Setting again = given;
    if (!file.layers.empty()) again.program = divide_repeats(given.program, file.layers)->program;
    const Result<ShardLimits> limits = limits_of(file, ShardMode::kExplicit, again.program, given.setting.links.grid());
    ASSERT_TRUE(limits) << limits.error().message();
    const ShardSolution read = *search_strategy(again.problem(*limits), {});
    EXPECT_NEAR(read.totals.ms(), found.totals.ms(), 1e-9 * found.totals.ms()) << memory_gib;
    EXPECT_NEAR(read.totals.bytes(), found.totals.bytes(), 1e-9 * found.totals.bytes()) << memory_gib;
  }
}

TEST(DivideRepeats, PartsFollowEachOtherAndArePrintable) {
  const Program whole = llama().program;
  const DividedProgram divided = *divide_repeats(whole, {{12, 20}});
  ASSERT_EQ(divided.program.repeats.size(), 2u);
  EXPECT_EQ(divided.program.repeats[0].count, 12);
  EXPECT_EQ(divided.program.repeats[1].carried_in, divided.program.repeats[0].carried_out);
  const auto op = divided.program.find_operator("layers.mlp.down.12-31");
  ASSERT_TRUE(op);
  EXPECT_EQ(whole.operators[divided.origins[*op].first].name, "layers.mlp.down");
  EXPECT_EQ(divided.origins[*op].second, 12u);
  EXPECT_EQ(*parse_program(program_text(divided.program), "written"), divided.program);
  const DividedProgram kept = *divide_repeats(whole, {{32}});
  for (size_t i = 0; i < whole.operators.size(); ++i)
    EXPECT_EQ(kept.program.operators[i].name, whole.operators[i].name);
}

TEST(DivideRepeats, OtherNumbersOfLayersAreRefused) {
  const Program whole = llama().program;
  for (const std::vector<std::vector<int64_t>>& parts : {std::vector<std::vector<int64_t>>{},
                                                         {{}},
                                                         {{31}},
                                                         {{33}},
                                                         {{0, 32}},
                                                         {{16, 16}, {1}},
                                                         {{int64_t{1} << 62, 2}}}) {
    EXPECT_FALSE(divide_repeats(whole, parts));
  }
}

}  // namespace
}  // namespace weft
