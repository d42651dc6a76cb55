// Strategies of families' layers on ranks of any kind: threads, or MPI processes.
#include "tests/support/draws.h"
#include "tests/support/pipeline/example_training.h"
#include "tests/support/pipeline/tiny_models.h"
#include "tests/support/program/random_strategy.h"
#include "weft/plan/head_limit.h"

namespace weft::layer_suite_test {
namespace {

struct Ranks {
  int64_t tp, dp;  ///< dp, or cp in every second example
};

class LayersOnRanks : public testing::TestWithParam<Ranks> {};

TEST_P(LayersOnRanks, TrainWithAnyStrategyAsOneRankDoes) {
  const std::vector<TinyModel> models = {
      kTinyText, {"HeadNorms", "qwen3", "{}"}, kTinyDropout, kTinyWindows, kTinyExperts};
  const int64_t tp = GetParam().tp;
  for (uint64_t seed = 1; seed <= draws(uint64_t{10}) && !HasFailure(); ++seed) {
    std::mt19937_64 random(seed);
    // The short sample has fewer rows than there are ranks.
    const TinyModel& tiny = models[seed % models.size()];
    const bool shares_rows = seed % 2 == 0;
    const int64_t dp = shares_rows ? 1 : GetParam().dp, cp = shares_rows ? GetParam().dp : 1;
    TrainingExample example{.fixture = tiny.fixture,
                            .sizes = tiny.sizes,
                            .tp = tp,
                            .cp = cp,
                            .dp = dp,
                            .sequence_parallel = seed % 3 == 0,
                            .zero = dp == 1 ? 0 : static_cast<int64_t>(seed % 4),
                            .mbs = 1 + static_cast<int64_t>(seed % 2),
                            .epsilon = 1e-5};
    example.has_short_sample = seed % 2 == 0;
    if (&tiny == &models.back()) {
      example.experts_over_tp = example.sequence_parallel;
      example.ep = example.experts_over_tp ? tp : dp;
    }
    const Model model = example_model(example);
    const bool may_exchange_heads = head_limit(model.modules.back()).allows(tp, cp);
    if (seed % 4 == 0 && may_exchange_heads) example.ulysses = cp;
    const Plan plan =
        with_llm_strategy(example_training_plan(example, model),
                          random_layer_strategy(model.modules.back(), tp, random, /*has_whole_attention=*/cp > 1));
    SCOPED_TRACE("seed " + std::to_string(seed) + " " + example.name() + ": " + to_json(plan.llm().strategy).dump());
    std::optional<TrainingOutcome> found = train_plan_on(plan_ranks(), example, plan);
    if (!found) GTEST_SKIP() << "on another number of processes";
    if (plan_ranks().are_processes) leave_out_unknown(*found);
    expect_same_training(*found, expected_training(example, model), {.allows_missing = plan_ranks().are_processes});
  }
}

INSTANTIATE_TEST_SUITE_P(Degrees, LayersOnRanks, testing::Values(Ranks{2, 1}, Ranks{4, 1}, Ranks{2, 2}),
                         [](const auto& ranks) {
                           return "tp" + std::to_string(ranks.param.tp) + "dp" + std::to_string(ranks.param.dp);
                         });

}  // namespace
}  // namespace weft::layer_suite_test
