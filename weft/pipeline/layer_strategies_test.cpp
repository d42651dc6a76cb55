// Families' models with strategies for the operators of their layers, trained and compared with one rank.
#include "tests/support/draws.h"
#include "tests/support/first_seed.h"
#include "tests/support/pipeline/expert_strategies.h"
#include "tests/support/pipeline/random_strategy_plan.h"
#include "tests/support/pipeline/tiny_models.h"
#include "weft/meaning/check.h"

namespace weft::layer_strategies_test {
namespace {

/// Gradients that are rounding alone are not blown up by the update.
constexpr double kEpsilon = 1e-5;

void expect_strategy_trains(const TrainingExample& example, const Model& model, const Plan& plan) {
  SCOPED_TRACE(strategies_text(plan));
  for (const Violation& violation : check_plan(plan)) ADD_FAILURE() << violation.field << " " << violation.message;
  if (testing::Test::HasFailure()) return;
  expect_same_training(train_plan(example, plan), train_by_hand(example, model));
}

BlockEntries all_layers(const Model& model, const std::vector<StrategyEntry>& entries) {
  BlockEntries blocks;
  for (const Block& kind : model.modules.back().distinct_layers) blocks[kind.name] = entries;
  return blocks;
}

TEST(LayerStrategies, TheUsualChoicesTrainThroughPrograms) {
  for (const bool divides_rows : {false, true}) {
    for (const char* fixture : {"llama_tied", "qwen3", "gpt2", "llama_bias"}) {
      TrainingExample example{
          .fixture = fixture, .tp = 2, .sequence_parallel = divides_rows, .mbs = 2, .epsilon = kEpsilon};
      SCOPED_TRACE(example.name());
      const Model model = example_model(example);
      expect_strategy_trains(example, model,
                             with_llm_strategy(example_training_plan(example, model), all_layers(model, {})));
    }
  }
}

TEST(LayerStrategies, TheUsualChoicesTrainAsTheLayersOwnCodeDoes) {
  // Where all sums are added up in the order of the layers' own code, bits are the same; else the last ones differ.
  // Into which place of its sum a product takes a bias is up to the processor's library.
  const std::vector<std::pair<const char*, bool>> fixtures = {
      {"llama_tied", true}, {"llama_bias", false}, {"qwen3", true}, {"gpt2", false}, {"qwen2_tied", false}};
  for (const auto& [fixture, has_same_order] : fixtures) {
    for (const bool divides_rows : {false, true}) {
      const TrainingExample example{
          .fixture = fixture, .tp = 2, .sequence_parallel = divides_rows, .mbs = 2, .steps = 4, .epsilon = kEpsilon};
      SCOPED_TRACE(example.name());
      const Model model = example_model(example);
      const Plan plan = example_training_plan(example, model);
      const TrainingOutcome own = train_plan(example, plan);
      const TrainingOutcome through = train_plan(example, with_llm_strategy(plan, all_layers(model, {})));
      ASSERT_EQ(through.losses.size(), 4);
      if (has_same_order) {
        EXPECT_EQ(through.losses, own.losses);
      }
      for (size_t step = 0; step < own.losses.size(); ++step)
        EXPECT_NEAR(through.losses[step], own.losses[step], 1e-14 * own.losses[step]) << "step " << step + 1;
    }
  }
}

TEST(LayerStrategies, RowsAreCutEverywhere) {
  // More ranks than some sequences have rows, and as many heads of keys as do not divide.
  for (const int64_t tp : {2, 4}) {
    for (const bool divides_rows : {false, true}) {
      TrainingExample example{
          .fixture = "llama_tied", .tp = tp, .sequence_parallel = divides_rows, .mbs = 2, .epsilon = kEpsilon};
      example.has_short_sample = true;
      SCOPED_TRACE(example.name());
      const Model model = example_model(example);
      expect_strategy_trains(example, model,
                             with_llm_strategy(example_training_plan(example, model),
                                               all_layers(model, {{.pattern = "*", .words = {{"tp", "s"}}}})));
    }
  }
}

TEST(LayerStrategies, ContextParallelRanksMayHaveNoRows) {
  // The last microbatch has one row.
  for (const auto& [fixture, ulysses] : {std::pair{"llama_bias", 1}, {"llama_tied", 2}}) {
    for (const bool divides_rows : {false, true}) {
      TrainingExample example{.fixture = fixture,
                              .tp = 2,
                              .cp = 2,
                              .ulysses = ulysses,
                              .sequence_parallel = divides_rows,
                              .mbs = 1,
                              .microbatches = 2,
                              .epsilon = kEpsilon};
      example.has_short_sample = true;
      SCOPED_TRACE(example.name());
      const Model model = example_model(example);
      for (const char* pattern : {"attention.norm", "mlp.*"}) {
        expect_strategy_trains(example, model,
                               with_llm_strategy(example_training_plan(example, model),
                                                 all_layers(model, {{.pattern = pattern, .words = {{"tp", "s"}}}})));
      }
    }
  }
}

/// Of the first batch, without what decides about dropout.
double evaluated(const TrainingExample& example, const Plan& plan) {
  double loss = 0;
  thread_ranks().run(plan.world_size, [&](World& world) {
    at::set_num_threads(1);
    auto rank = TrainingRank::create(world, plan, {.seed = kExampleSeed});
    WEFT_CHECK(rank.ok(), "{}", rank.error().message());
    std::vector<RawInputs> samples = example_batch(example, (*rank)->numbers(), (*rank)->vocabulary(), 1);
    for (RawInputs& sample : samples) sample.draws.reset();
    const double own = (*rank)->evaluate(example_step_batch(**rank, samples));
    if (world.rank() == 0) loss = own;
  });
  return loss;
}

TEST(LayerStrategies, EvaluationsDropNothing) {
  TrainingExample example{.fixture = kTinyDropout.fixture, .sizes = kTinyDropout.sizes, .tp = 2, .mbs = 2};
  const Model model = example_model(example);
  const Plan plan = example_training_plan(example, model);
  const double expected = evaluated(example, plan);
  for (const char* word : {"s", "same"}) {
    const Plan other = with_llm_strategy(plan, all_layers(model, {{.pattern = "*", .words = {{"tp", word}}}}));
    EXPECT_NEAR(evaluated(example, other), expected, 1e-9 * expected) << word;
  }
}

class ExpertStrategies : public testing::TestWithParam<TrainingExample> {};

TEST_P(ExpertStrategies, EqualOneRank) {
  const TrainingExample& example = GetParam();
  const Model model = example_model(example);
  const TrainingOutcome expected = train_by_hand(example, model);
  for (const BlockEntries& blocks : expert_strategies(model)) {
    const Plan plan = with_llm_strategy(example_training_plan(example, model), blocks);
    SCOPED_TRACE(strategies_text(plan));
    for (const Violation& violation : check_plan(plan)) ADD_FAILURE() << violation.field << " " << violation.message;
    if (HasFailure()) return;
    expect_same_training(train_plan(example, plan), expected);
  }
}

INSTANTIATE_TEST_SUITE_P(Plans, ExpertStrategies, testing::ValuesIn(expert_examples()),
                         [](const auto& test) { return test.param.name(); });

/// Of all forms that plans have.
class RandomLayerStrategies : public testing::TestWithParam<TinyModel> {};

TEST_P(RandomLayerStrategies, EqualOneRank) {
  TrainingExample example{.fixture = GetParam().fixture, .sizes = GetParam().sizes, .steps = 3, .epsilon = kEpsilon};
  const Model model = example_model(example);
  int64_t num_shared = 0;
  uint64_t seed = first_seed(1);
  for (uint64_t i = 0; i < draws(uint64_t{5}) && !HasFailure(); ++i, ++seed) {
    Plan plan = random_strategy_plan(model, seed);
    num_shared += shares_rows_of_strategies(plan) ? 1 : 0;
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + settings_text(plan));
    train_by(plan, example);
    expect_strategy_trains(example, model, plan);
  }
  RecordProperty("plans_with_context_parallelism", std::to_string(num_shared));
}

INSTANTIATE_TEST_SUITE_P(Models, RandomLayerStrategies, layer_models(),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace weft::layer_strategies_test
