// Users' own programs with strategies for their operators, trained and compared with one rank.
#include "tests/support/draws.h"
#include "tests/support/first_seed.h"
#include "tests/support/pipeline/example_programs.h"
#include "tests/support/program/random_strategy.h"
#include "weft/meaning/check.h"

namespace weft::program_strategies_test {
namespace {

/// Gradients that are rounding alone are not blown up by the update.
constexpr double kEpsilon = 1e-5;

TrainingExample plain_example() {
  return {.mbs = 2, .microbatches = 2, .epsilon = kEpsilon};
}

void expect_strategy_trains(const TrainingExample& example, const std::string& text, BlockEntries blocks) {
  const Model model = program_example_model(text);
  const Plan plan = with_llm_strategy(example_training_plan(example, model), std::move(blocks));
  SCOPED_TRACE(to_json(plan.llm().strategy).dump());
  for (const Violation& violation : check_plan(plan)) ADD_FAILURE() << violation.field << " " << violation.message;
  if (testing::Test::HasFailure()) return;
  expect_same_training(train_program(example, plan), train_program_plainly(example, model, text));
}

BlockEntries one_entry(const std::string& block, const std::string& op, const std::string& word) {
  return {{block, {{.pattern = op, .words = {{"tp", word}}}}}};
}

TEST(ProgramStrategies, SamplesAreDividedOnTheTensorParallelAxis) {
  for (const int64_t tp : {2, 3}) {
    SCOPED_TRACE(tp);
    TrainingExample example = plain_example();
    example.tp = tp;
    // Two samples on three ranks: one has none.
    expect_strategy_trains(example, encoder_program(0), one_entry("layer", "*", "b"));
    expect_strategy_trains(example, tied_program(), one_entry("exit", "*", "b"));
    expect_strategy_trains(example, mlp_program(), one_entry("layer", "*", "b"));
  }
}

TEST(ProgramStrategies, ATiedTableMayLieInAnyWay) {
  TrainingExample example = plain_example();
  example.tp = 2;
  for (const char* entry : {"same", "v", "h", "b", "s"}) {
    for (const char* exit : {"same", "v", "h", "s"}) {
      SCOPED_TRACE(std::string(entry) + " and " + exit);
      BlockEntries blocks = one_entry("entry", "x", entry);
      blocks.merge(one_entry("exit", "logits", exit));
      for (const int64_t pp : {1, 2}) {
        example.pp = pp;
        expect_strategy_trains(example, tied_program(), blocks);
      }
    }
  }
}

TEST(ProgramStrategies, WhatIsDroppedDependsOnNoStrategy) {
  const Model model = program_example_model(encoder_program(0.25));
  TrainingExample alone = plain_example();
  alone.mbs = 4, alone.microbatches = 1;
  const TrainingOutcome expected = train_program(alone, example_training_plan(alone, model));
  const uint64_t first = first_seed(1);
  for (uint64_t seed = first; seed < first + draws(uint64_t{12}) && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    TrainingExample form = plain_example();
    form.tp = seed % 2 == 0 ? 2 : 4;
    const Plan plan =
        with_llm_strategy(example_training_plan(form, model), random_strategy(model.modules.back(), random));
    expect_same_training(train_program(form, plan), expected);
  }
}

/// Of all forms that a plan of a program has, with rows that do not divide and ranks that have none.
class RandomStrategies : public testing::TestWithParam<int> {};

TEST_P(RandomStrategies, ArePlainAutograd) {
  const std::vector<std::string> programs = {encoder_program(0), tied_program(), mlp_program(), heads_program()};
  const auto which = static_cast<size_t>(GetParam());
  const std::string& text = programs[which];
  const Model model = program_example_model(text);
  const uint64_t first = first_seed(1000 * (which + 1) + 1);
  for (uint64_t seed = first; seed < first + draws(uint64_t{70}) && !HasFailure(); ++seed) {
    std::mt19937_64 random(seed);
    TrainingExample example = drawn_program_example({2, 2, 3, 4}, /*marks_layers=*/which != 2, random);
    example.steps = 3, example.epsilon = kEpsilon;
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + example.name());
    expect_strategy_trains(example, text, random_strategy(model.modules.back(), random));
  }
}

INSTANTIATE_TEST_SUITE_P(Programs, RandomStrategies, testing::Values(0, 1, 2, 3));

}  // namespace
}  // namespace weft::program_strategies_test
