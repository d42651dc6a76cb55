// What the check says of plans, against training.
#include <fmt/format.h>

#include "tests/support/draws.h"
#include "tests/support/first_seed.h"
#include "tests/support/meaning/changed_plan.h"
#include "tests/support/meaning/random_plan.h"
#include "tests/support/pipeline/example_training.h"
#include "tests/support/pipeline/tiny_models.h"
#include "tests/support/spec/random_adapters.h"
#include "weft/meaning/check.h"

namespace weft {
namespace {

class ChangedPlans : public testing::TestWithParam<TinyModel> {};

/// What training says of a plan before it begins; empty where it would begin.
std::string refusal_of_training(const Plan& plan) {
  std::string refusal;
  const auto error = run_ranks({.size = 1}, [&](World& world) {
    const auto made = TrainingRank::create(world, plan, {});
    if (!made) refusal = made.error().field;
  });
  return error ? error->message() : refusal;
}

TEST_P(ChangedPlans, TrainExactlyWhereTheCheckAcceptsThem) {
  TrainingExample example{.fixture = GetParam().fixture, .sizes = GetParam().sizes, .steps = 2, .epsilon = 1e-5};
  const Model base = example_model(example);
  const uint64_t count = draws(uint64_t{16});
  uint64_t num_accepted = 0, num_plans = 0;
  for (uint64_t i = 1; i <= count && !HasFailure(); ++i, ++num_plans) {
    const uint64_t seed = first_seed(i);
    const Model model = maybe_with_adapters(base, seed);
    ChangedPlan drawn = changed_plan(random_plan(model, 5000 + seed), seed);
    Plan& plan = drawn.plan;
    plan.precision = example.precision;
    SCOPED_TRACE(fmt::format("seed {}, {}: {}", seed, drawn.change, settings_text(plan)));
    const std::vector<Violation> violations = check_plan(plan);
    if (!violations.empty()) {
      EXPECT_EQ(refusal_of_training(plan), violations.front().field);
      continue;
    }
    ++num_accepted;
    example.mbs = plan.workload.global_batch_samples;
    example.microbatches = 1;
    example.frozen = plan.workload.frozen;
    example.trainable = plan.trainable;
    expect_same_training(train_plan(example, plan), train_by_hand(example, model));
  }
  record_plans(num_plans);
  if (!has_usual_seeds()) return;
  EXPECT_GE(num_accepted, count / 8) << "too few legal plans to say anything";
  EXPECT_LE(num_accepted, count - count / 8) << "too few others";
}

INSTANTIATE_TEST_SUITE_P(Models, ChangedPlans, tiny_models(), [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace weft
