// Strategies of users' own programs on ranks of any kind: threads, or MPI processes.
#include "tests/support/draws.h"
#include "tests/support/first_seed.h"
#include "tests/support/pipeline/example_programs.h"
#include "tests/support/program/random_strategy.h"

namespace weft::program_suite_test {
namespace {

class ProgramsOnRanks : public testing::TestWithParam<int64_t> {};

TEST_P(ProgramsOnRanks, TrainWithAnyStrategyAsOneRankDoes) {
  const std::vector<std::string> programs = {encoder_program(0), tied_program(), mlp_program(), heads_program()};
  const int64_t tp = GetParam();
  const uint64_t first = first_seed(1);
  for (uint64_t seed = first; seed < first + draws(uint64_t{9}) && !HasFailure(); ++seed) {
    std::mt19937_64 random(seed);
    const std::string& text = programs[seed % 4];
    const Model model = program_example_model(text);
    // With one sample at a time, whoever divides samples has ranks without any.
    TrainingExample example{.tp = tp, .mbs = 1 + static_cast<int64_t>(seed % 2), .epsilon = 1e-5};
    const Plan plan =
        with_llm_strategy(example_training_plan(example, model), random_strategy(model.modules.back(), random));
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + to_json(plan.llm().strategy).dump());
    std::optional<TrainingOutcome> found = train_program_on(plan_ranks(), example, plan);
    if (!found) GTEST_SKIP() << "on another number of processes";
    if (plan_ranks().are_processes) leave_out_unknown(*found);
    expect_same_training(*found, train_program_plainly(example, model, text),
                         {.allows_missing = plan_ranks().are_processes});
  }
}

INSTANTIATE_TEST_SUITE_P(Degrees, ProgramsOnRanks, testing::Values(2, 4),
                         [](const auto& degree) { return "tp" + std::to_string(degree.param); });

}  // namespace
}  // namespace weft::program_suite_test
