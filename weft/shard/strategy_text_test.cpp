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
    const std::string text = *strategy_text(problem, found.assignment);
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

Program with_a_part(const std::string& name) {
  return *parse_program("weft_program 1 p\ndim h 8\ninput x [h]\n" + name + " = scale(x) : h -> h\nrepeat 8 " + name +
                            "\nup = scale(" + name + ") : h -> h\nend up\n",
                        "test");
}

TEST(DivideRepeats, APartHasNoNameThatIsThereAlready) {
  EXPECT_TRUE(divide_repeats(with_a_part("up.0-2"), {{4, 4}}));
  const Result<DividedProgram> divided = divide_repeats(with_a_part("up.0-3"), {{4, 4}});
  ASSERT_FALSE(divided);
  EXPECT_NE(divided.error().message().find("a part that is called 'up.0-3', as another tensor is"), std::string::npos);
}

// A strategy whose layers differ cannot be written then.
TEST(StrategyText, IsRefusedWhereAPartWouldBeCalledAsAnotherTensor) {
  const Cluster cluster = *Scenarios(source_tree() / "scenarios").cluster("dgx_h100", 1);
  const Setting given{.program = with_a_part("up.0-3"),
                      .setting = {.cluster = cluster, .links = *AxisLinks::create({{"dp", 8}}, cluster)}};
  const ShardProblem problem = given.problem(ShardLimits::none(given.program, 1));
  ShardAssignment assignment = search_strategy(problem, {})->assignment;
  ASSERT_TRUE(strategy_text(problem, assignment));
  std::vector<size_t>& options = assignment.options[1];
  ASSERT_GT(problem.options(1).size(), 1u);
  for (size_t layer = 0; layer < 4; ++layer) options[layer] = options[layer] == 0 ? 1 : 0;
  EXPECT_FALSE(strategy_text(problem, assignment));
}

TEST(DivideRepeats, LayersAreCountedBeforeTheyAreListed) {
  std::string text = "weft_program 1 p\ndim h 8\ninput x [h]\n", last = "x";
  for (int i = 0; i < 3000; ++i) {
    const std::string name = "r" + std::to_string(i);
    text += "repeat 100000 " + last + "\n" + name + " = scale(" + last + ") : h -> h\nend " + name + "\n";
    last = name;
  }
  const Program program = *parse_program(text, "test");
  const Result<DividedProgram> divided = unrolled(program);
  ASSERT_FALSE(divided);
  EXPECT_NE(divided.error().message().find("more than 10,000 operators"), std::string::npos);
  const Cluster cluster = *Scenarios(source_tree() / "scenarios").cluster("dgx_h100", 1);
  const Result<ShardProblem> problem = ShardProblem::create(
      program, {.cluster = cluster, .links = *AxisLinks::create({{"dp", 8}}, cluster)}, ShardLimits::none(program, 1));
  ASSERT_FALSE(problem);
  EXPECT_NE(problem.error().message().find("at most 10,000,000 can be placed"), std::string::npos)
      << problem.error().message();
}

}  // namespace
}  // namespace weft
