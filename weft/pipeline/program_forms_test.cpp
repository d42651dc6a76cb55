// Users' own programs, trained by plans of all forms and compared with plain autograd over the same operators.
#include "tests/support/draws.h"
#include "tests/support/pipeline/example_programs.h"
#include "weft/meaning/check.h"

namespace weft {
namespace {

/// Gradients that are rounding alone are not blown up by the update.
constexpr double kEpsilon = 1e-5;

void expect_plain_training(const TrainingExample& example, const std::string& text) {
  const Model model = program_example_model(text);
  const Plan plan = example_training_plan(example, model);
  for (const Violation& violation : check_plan(plan)) ADD_FAILURE() << violation.field << " " << violation.message;
  if (testing::Test::HasFailure()) return;
  const TrainingOutcome expected = train_program_plainly(example, model, text);
  for (const double norm : expected.norms) EXPECT_GT(norm, 1e-3) << "gradients that vanish show nothing";
  expect_same_training(train_program(example, plan), expected);
}

TrainingExample plain_example() {
  return {.mbs = 2, .microbatches = 2, .epsilon = kEpsilon};
}

TEST(ProgramForms, OneRankTrainsAsPlainAutogradDoes) {
  expect_plain_training(plain_example(), encoder_program(0));
  expect_plain_training(plain_example(), tied_program());
  expect_plain_training(plain_example(), mlp_program());
  expect_plain_training(plain_example(), heads_program());
}

TEST(ProgramForms, EveryZeroStageOnDataParallelRanksIsPlainAutograd) {
  for (const int64_t zero : {0, 1, 2, 3}) {
    SCOPED_TRACE(zero);
    TrainingExample example = plain_example();
    example.dp = 2, example.zero = zero, example.buckets_mb = zero % 2 == 0 ? 64 : 1e-4;
    expect_plain_training(example, encoder_program(0));
    expect_plain_training(example, mlp_program());
  }
}

TEST(ProgramForms, TensorParallelRanksArePlainAutograd) {
  for (const int64_t tp : {2, 3, 4}) {
    SCOPED_TRACE(tp);
    TrainingExample example = plain_example();
    example.tp = tp;
    expect_plain_training(example, encoder_program(0));
    if (tp <= 4) expect_plain_training(example, tied_program());
    expect_plain_training(example, mlp_program());
    expect_plain_training(example, heads_program());
  }
}

TEST(ProgramForms, PipelinesOfMarkedLayersArePlainAutograd) {
  for (const char* schedule : {"1f1b", "gpipe", "zb_h1"}) {
    SCOPED_TRACE(schedule);
    TrainingExample example = plain_example();
    example.pp = 2, example.schedule = schedule, example.microbatches = 4, example.recompute.full = 1;
    expect_plain_training(example, encoder_program(0));
    expect_plain_training(example, tied_program());
  }
}

TEST(ProgramForms, WhatIsDroppedDependsOnNoSplit) {
  const Model model = program_example_model(encoder_program(0.25));
  TrainingExample alone = plain_example();
  alone.mbs = 8, alone.microbatches = 1;
  const TrainingOutcome expected = train_program(alone, example_training_plan(alone, model));
  std::vector<TrainingExample> forms(5, plain_example());
  forms[0].dp = 2;
  forms[1].tp = 2, forms[1].microbatches = 4;
  forms[2].pp = 2, forms[2].microbatches = 4, forms[2].schedule = "zb_h1";
  forms[3].pp = 2, forms[3].vpp = 2, forms[3].microbatches = 4, forms[3].schedule = "interleaved_1f1b";
  forms[3].recompute.full = 2;
  forms[4].tp = 2, forms[4].dp = 2, forms[4].pp = 2, forms[4].zero = 1;
  for (const TrainingExample& form : forms) {
    SCOPED_TRACE(form.name());
    ASSERT_EQ(form.batch(), alone.batch());
    expect_same_training(train_program(form, example_training_plan(form, model)), expected);
  }
  // And something is dropped.
  const Model plain = program_example_model(encoder_program(0));
  EXPECT_GT(std::abs(train_program(alone, example_training_plan(alone, plain)).losses[0] - expected.losses[0]), 1e-6);
}

TEST(ProgramForms, EvaluationsDropNothing) {
  const auto evaluated = [](std::string text) {
    const std::string mask = "mask causal";
    text.insert(text.find(mask) + mask.size(), " ; drops 0.5");
    const TrainingExample example = plain_example();
    const Plan plan = example_training_plan(example, program_example_model(text));
    double loss = 0;
    thread_ranks().run(1, [&](World& world) {
      const auto rank = *TrainingRank::create(world, plan, {.seed = kExampleSeed});
      StepBatch batch = program_step_batch(*rank, program_batch(*rank->numbers().program, 1, example.batch()), 1);
      for (Inputs& inputs : batch.microbatches) inputs.draws = nullptr;
      loss = rank->evaluate(batch);
    });
    return loss;
  };
  const Model plain = program_example_model(encoder_program(0));
  TrainingExample alone = plain_example();
  alone.steps = 1;
  const double expected = train_program(alone, example_training_plan(alone, plain)).losses[0];
  const double num_targets = static_cast<double>(
      named_inputs(*plain.numbers.program, program_batch(*plain.numbers.program, 1, alone.batch())).num_targets);
  EXPECT_NEAR(evaluated(encoder_program(0)) / num_targets, expected, 1e-9);
  EXPECT_NEAR(evaluated(encoder_program(0.25)) / num_targets, expected, 1e-9);
}

TEST(ProgramForms, RandomPlansArePlainAutograd) {
  const std::vector<std::string> programs = {encoder_program(0), tied_program(), mlp_program(), heads_program()};
  for (uint64_t seed = 1; seed <= draws(uint64_t{24}) && !HasFailure(); ++seed) {
    std::mt19937_64 random(seed);
    const std::string& text = programs[seed % 4];
    const bool marks_layers = seed % 4 != 2;
    TrainingExample example = drawn_program_example({1, 1, 2, 3}, marks_layers, random);
    example.steps = 2, example.epsilon = kEpsilon;
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + example.name());
    expect_plain_training(example, text);
  }
}

TEST(ProgramForms, PlansThatAProgramCannotHaveAreRefusedByName) {
  const auto first_of = [](const TrainingExample& example, const std::string& text) {
    const auto violations = check_plan(example_training_plan(example, program_example_model(text)));
    return violations.empty() ? std::string() : violations.front().field + ": " + violations.front().message;
  };
  TrainingExample pipeline = plain_example(), context = plain_example(), rows = plain_example(), some = plain_example();
  pipeline.pp = 2, context.cp = 2, rows.tp = 2, rows.sequence_parallel = true, some.recompute.selective = 1;
  EXPECT_NE(first_of(pipeline, mlp_program()).find("modules.llm.pp: is 2, but the program own marks no layers"),
            std::string::npos);
  EXPECT_EQ(first_of(pipeline, tied_program()), "");
  EXPECT_NE(first_of(context, tied_program()).find("modules.llm.cp: is 2"), std::string::npos);
  EXPECT_NE(first_of(rows, tied_program()).find("modules.llm.sequence_parallel: is on"), std::string::npos);
  EXPECT_NE(first_of(some, tied_program()).find("modules.llm.recompute: has layers that recompute attention"),
            std::string::npos);
}

}  // namespace
}  // namespace weft
