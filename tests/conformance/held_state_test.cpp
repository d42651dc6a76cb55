// What plans say that their ranks hold, against ranks that run them.
#include "weft/meaning/held_state.h"

#include "tests/support/draws.h"
#include "tests/support/first_seed.h"
#include "tests/support/meaning/random_plan.h"
#include "tests/support/pipeline/example_training.h"
#include "tests/support/pipeline/random_settings.h"
#include "tests/support/pipeline/tiny_models.h"
#include "tests/support/spec/random_adapters.h"

namespace weft {
namespace {

/// Of all optimizers of a rank, after a step.
HeldState held_by(const TrainingRank& rank, const PrecisionPlan& precision) {
  HeldState held;
  for (const StageOptimizer* optimizer : rank.optimizers()) {
    const HeldElements elements = optimizer->held_elements();
    const Precision sums = optimizer->rules().gradient_sums(precision.reduce, precision.master);
    held += {.weights = elements.values * static_cast<int64_t>(num_bytes(precision.compute)),
             .gradients = elements.gradients * static_cast<int64_t>(num_bytes(sums)),
             .optimizer = elements.states * static_cast<int64_t>(num_bytes(precision.master))};
  }
  return held;
}

std::vector<HeldState> held_by_ranks(const TrainingExample& example, const Plan& plan) {
  std::vector<HeldState> held(static_cast<size_t>(plan.world_size));
  const auto error =
      run_ranks({.size = plan.world_size, .comm = {.timeout = std::chrono::seconds(60)}}, [&](World& world) {
        at::set_num_threads(1);
        auto made = TrainingRank::create(world, plan, {.seed = kExampleSeed});
        WEFT_CHECK(made.ok(), "{}", made.error().message());
        TrainingRank& rank = **made;
        const std::vector<RawInputs> samples = example_batch(example, rank.numbers(), rank.vocabulary(), 1);
        rank.step(example_step_batch(rank, samples, plan.balance), num_example_targets(samples), kExampleRate);
        held[static_cast<size_t>(world.rank())] = held_by(rank, plan.precision);
      });
  WEFT_CHECK(!error, "{}", error->message());
  return held;
}

class HeldStates : public testing::TestWithParam<TinyModel> {};

TEST_P(HeldStates, AreToTheByteWhatRanksHold) {
  TrainingExample example{.fixture = GetParam().fixture, .sizes = GetParam().sizes, .steps = 1};
  const Model model = example_model(example);
  uint64_t num_plans = 0;
  for (uint64_t i = 1; i <= draws(uint64_t{12}) && !HasFailure(); ++i, ++num_plans) {
    const uint64_t seed = first_seed(i);
    Plan plan = random_plan(maybe_with_adapters(model, seed), 1000 + seed);
    draw_settings(seed, plan);
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + settings_text(plan));
    example.mbs = plan.workload.global_batch_samples;
    example.microbatches = 1;
    example.frozen = plan.workload.frozen;
    const std::vector<HeldState> held = held_by_ranks(example, plan);
    for (int64_t rank = 0; rank < plan.world_size; ++rank) {
      const HeldState predicted = held_state(plan, rank), found = held[static_cast<size_t>(rank)];
      EXPECT_EQ(predicted.weights, found.weights) << "rank " << rank;
      EXPECT_EQ(predicted.gradients, found.gradients) << "rank " << rank;
      EXPECT_EQ(predicted.optimizer, found.optimizer) << "rank " << rank;
    }
  }
  record_plans(num_plans);
}

TEST_P(HeldStates, CountTheCopyOfACheckpoint) {
  const TrainingExample example{.fixture = GetParam().fixture, .sizes = GetParam().sizes};
  const Model model = example_model(example);
  for (uint64_t i = 1; i <= draws(uint64_t{6}) && !HasFailure(); ++i) {
    const uint64_t seed = first_seed(i);
    Plan plan = random_plan(maybe_with_adapters(model, seed), 1000 + seed);
    draw_settings(seed, plan);
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + settings_text(plan));
    const auto error = run_ranks({.size = plan.world_size}, [&](World& world) {
      const auto rank = *TrainingRank::create(world, plan, {.seed = std::nullopt});
      int64_t copied = 0, padding = 0;
      for (const StageOptimizer* optimizer : rank->optimizers()) {
        int64_t owned = 0;
        for (const OwnedPart& part : optimizer->owned_parts()) {
          for (const at::Tensor* tensor : {&part.state.master, &part.state.moment1, &part.state.moment2})
            owned += tensor->defined() ? static_cast<int64_t>(tensor->nbytes()) : 0;
        }
        const int64_t copies = optimizer->owns_copies() ? optimizer->group().size() : 1;
        copied += owned / copies;
        for (size_t b = 0; b < optimizer->buckets().size(); ++b) {
          int64_t filled = 0;
          for (const BucketSlot& slot : optimizer->buckets()[b].slots)
            filled += common(slot.elements, optimizer->owned(b)).size();
          padding += 3 * 8 * (optimizer->owned(b).size() - filled) + 8;
        }
      }
      const int64_t predicted = snapshot_bytes(plan)[static_cast<size_t>(world.rank())];
      EXPECT_GE(predicted + 1, copied) << "rank " << world.rank();
      EXPECT_LE(predicted, copied + padding + 8) << "rank " << world.rank();
    });
    WEFT_CHECK(!error, "{}", error->message());
  }
}

INSTANTIATE_TEST_SUITE_P(Models, HeldStates, tiny_models(), [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace weft
