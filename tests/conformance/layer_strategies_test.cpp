// What plans with strategies for layers of families say that ranks send and receive, against ranks that run them.
#include "tests/conformance/step_calls_compared.h"
#include "tests/conformance/step_run.h"
#include "tests/support/pipeline/expert_strategies.h"
#include "tests/support/pipeline/random_strategy_plan.h"
#include "weft/meaning/check.h"
#include "weft/meaning/step_traffic.h"

namespace weft::layer_strategies_test {
namespace {

void expect_planned_calls(const TrainingExample& example, const Plan& plan) {
  for (const Violation& violation : check_plan(plan)) ADD_FAILURE() << violation.field << " " << violation.message;
  const StepRun run = run_step(example, plan);
  for (int64_t rank = 0; rank < plan.world_size; ++rank) {
    const auto index = static_cast<size_t>(rank);
    EXPECT_EQ(first_difference(step_calls(plan, run.load, rank), ordered_calls(plan, run.calls[index])), "")
        << "rank " << rank;
    EXPECT_EQ(text(step_traffic(plan, run.load, rank)), text(run.traffic[index])) << "rank " << rank;
  }
}

class LayerStrategyTraffic : public testing::TestWithParam<TinyModel> {};

TEST_P(LayerStrategyTraffic, IsToTheByteWhatRanksMoveInThatOrder) {
  TrainingExample example{.fixture = GetParam().fixture, .sizes = GetParam().sizes, .microbatches = 1, .steps = 1};
  const Model model = example_model(example);
  int64_t num_shared = 0;
  uint64_t seed = first_seed(9000);
  for (uint64_t i = 0; i < draws(uint64_t{6}) && !HasFailure(); ++i, ++seed) {
    Plan plan = random_strategy_plan(model, seed);
    num_shared += shares_rows_of_strategies(plan) ? 1 : 0;
    if (i % 3 == 0)
      plan.precision = {.compute = Precision::kBf16, .master = Precision::kFp32, .reduce = Precision::kFp32};
    example.mbs = plan.workload.global_batch_samples;
    example.frozen = plan.workload.frozen;
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + settings_text(plan) + " " + strategies_text(plan));
    expect_planned_calls(example, plan);
  }
  RecordProperty("plans_with_context_parallelism", std::to_string(num_shared));
}

INSTANTIATE_TEST_SUITE_P(Models, LayerStrategyTraffic, layer_models(),
                         [](const auto& test) { return test.param.name; });

class ExpertStrategyTraffic : public testing::TestWithParam<TrainingExample> {};

TEST_P(ExpertStrategyTraffic, IsToTheByteWhatRanksMoveInThatOrder) {
  TrainingExample example = GetParam();
  example.steps = 1;
  const Model model = example_model(example);
  for (const BlockEntries& blocks : expert_strategies(model)) {
    const Plan plan = with_llm_strategy(example_training_plan(example, model), blocks);
    SCOPED_TRACE(strategies_text(plan));
    expect_planned_calls(example, plan);
  }
}

INSTANTIATE_TEST_SUITE_P(Plans, ExpertStrategyTraffic, testing::ValuesIn(expert_examples()),
                         [](const auto& test) { return test.param.name(); });

}  // namespace
}  // namespace weft::layer_strategies_test
