// Plans drawn at random, each trained for a few steps and compared with one rank.
#include "tests/support/draws.h"
#include "tests/support/meaning/random_plan.h"
#include "tests/support/pipeline/example_training.h"
#include "tests/support/pipeline/tiny_models.h"

namespace weft {
namespace {

class RandomPlans : public testing::TestWithParam<TinyModel> {};

TEST_P(RandomPlans, EqualOneRank) {
  TrainingExample example{.fixture = GetParam().fixture, .sizes = GetParam().sizes, .steps = 2, .epsilon = 1e-5};
  const Model model = example_model(example);
  for (uint64_t seed = 1; seed <= draws(uint64_t{12}) && !HasFailure(); ++seed) {
    Plan plan = random_plan(model, seed);
    plan.modules.back().recompute_logits = seed % 2 == 0;
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + settings_text(plan));
    train_by(plan, example);
    expect_same_training(train_plan(example, plan), train_by_hand(example, model));
  }
}

INSTANTIATE_TEST_SUITE_P(Models, RandomPlans, tiny_models(), [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace weft
