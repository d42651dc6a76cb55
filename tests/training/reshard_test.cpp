// Weights and optimizer states that go from one plan to another, over files and in memory, against one device.
#include <numeric>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/support/checkpoint/owned_elements.h"
#include "tests/support/draws.h"
#include "tests/support/meaning/random_plan.h"
#include "tests/support/pipeline/random_strategy_plan.h"
#include "tests/support/pipeline/tiny_models.h"
#include "tests/support/weights/example_files.h"
#include "tests/training/one_rank.h"
#include "tests/training/small_run.h"
#include "weft/checkpoint/load_checkpoint.h"
#include "weft/checkpoint/save_checkpoint.h"

namespace weft::training {
namespace {

constexpr double kEpsilon = 1e-5;
constexpr double kTolerance = 1e-9;

/// For hundreds of steps. With the settings above AdamW makes twice of a rounding error at every step, on one device as
/// on many: 1e-15 becomes 1e-8 in 24 steps.
constexpr double kLongEpsilon = 1e-3, kLongRate = 1e-3;

std::unique_ptr<TrainingRank> rank_of(World& world, const Plan& plan, std::optional<uint64_t> seed,
                                      double epsilon = kEpsilon) {
  auto rank = TrainingRank::create(world, plan,
                                   {.adamw = {.epsilon = epsilon}, .max_gradient_norm = kExampleMaxNorm, .seed = seed});
  WEFT_CHECK(rank.ok(), "{}", rank.error().message());
  return *std::move(rank);
}

/// What ranks and one device make of the same steps.
struct Expected {
  std::vector<std::vector<RawInputs>> samples;
  std::vector<OneRank::Step> steps;
};

void add_steps(OneRank& one, const Plan& plan, int64_t count, Expected& expected) {
  one.use(plan);
  for (int64_t i = 0; i < count; ++i) {
    expected.samples.push_back(one.next_samples());
    expected.steps.push_back(one.step());
  }
}

/// On one rank of a plan; all ranks compare.
void take_steps(TrainingRank& rank, const Plan& plan, const Expected& expected, size_t first, size_t count,
                double learning_rate = kExampleRate) {
  for (size_t step = first; step < first + count; ++step) {
    const std::vector<RawInputs>& samples = expected.samples[step];
    const StepReport report =
        rank.step(example_step_batch(rank, samples, plan.balance), num_example_targets(samples), learning_rate);
    EXPECT_NEAR(report.loss, expected.steps[step].loss, kTolerance * std::abs(expected.steps[step].loss))
        << "loss of step " << step + 1;
    EXPECT_NEAR(report.gradient_norm, expected.steps[step].norm, kTolerance * expected.steps[step].norm)
        << "norm of step " << step + 1;
  }
}

void expect_weights(const std::map<std::string, at::Tensor>& found, const std::map<std::string, at::Tensor>& expected,
                    double tolerance = kTolerance) {
  ASSERT_EQ(found.size(), expected.size());
  for (const auto& [name, weight] : found) {
    const at::Tensor& value = expected.at(name);
    EXPECT_LE((weight - value).abs().max().item<double>(), tolerance * value.abs().max().item<double>()) << name;
  }
}

Plan drawn_plan(const Model& model, uint64_t seed, int64_t world_size) {
  Plan plan = random_plan(model, seed, {.world_size = world_size});
  plan.precision = {.compute = Precision::kFp64, .master = Precision::kFp64, .reduce = Precision::kFp64};
  return plan;
}

class Reshard : public testing::TestWithParam<TinyModel> {
 protected:
  Model model() const { return example_model({.fixture = GetParam().fixture, .sizes = GetParam().sizes}); }
};

TEST_P(Reshard, ACheckpointGoesOnByAnyOtherPlan) {
  const Model model = this->model();
  const char* wanted = std::getenv("WEFT_PLAN_PAIRS");
  const uint64_t count = wanted != nullptr ? std::stoull(wanted) : draws(uint64_t{3});
  const char* from = std::getenv("WEFT_PLAN_SEED");
  const uint64_t first = from != nullptr ? std::stoull(from) : 1;
  constexpr int64_t kSizes[] = {8, 1, 6, 4, 8, 2, 3};
  for (uint64_t seed = first; seed < first + count && !HasFailure(); ++seed) {
    const Plan before = drawn_plan(model, 2 * seed, kSizes[seed % std::size(kSizes)]);
    const Plan after = drawn_plan(model, 2 * seed + 1, kSizes[(seed / 2) % std::size(kSizes)]);
    SCOPED_TRACE(fmt::format("seed {}: {} -> {}", seed, settings_text(before), settings_text(after)));
    OneRank one(model, kEpsilon);
    Expected expected;
    add_steps(one, before, 2, expected);
    add_steps(one, after, 2, expected);
    const ScratchFolder scratch;
    on_ranks(before.world_size, [&](World& world) {
      const auto rank = rank_of(world, before, kExampleSeed);
      take_steps(*rank, before, expected, 0, 2);
      const auto saved = save_checkpoint({.checkpoints = scratch.path(), .step = 2, .plan = before, .chunk_bytes = 512},
                                         world.all(), rank->optimizers());
      WEFT_CHECK(saved.ok(), "{}", saved.error().message());
    });
    const auto checkpoint = read_checkpoint(scratch / "step-00000002");
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message();
    std::map<std::string, at::Tensor> weights;
    std::mutex guard;
    on_ranks(after.world_size, [&](World& world) {
      const auto rank = rank_of(world, after, std::nullopt);
      const auto error = load_checkpoint(*checkpoint, world.all(), rank->optimizers());
      WEFT_CHECK(!error, "{}", error->message());
      take_steps(*rank, after, expected, 2, 2);
      rank->gather_values();
      const std::lock_guard lock(guard);
      collect_example_weights(*rank, weights);
    });
    expect_weights(weights, one.weights());
  }
}

/// Weights lie otherwise in layers with strategies, and have the same names.
TEST(StrategyReshard, ARunGoesOnWithAnotherStrategyOrWithoutOne) {
  for (const TinyModel& tiny : {TinyModel{"Text", "llama_tied", "{}"}, TinyModel{"Norms", "qwen3", "{}"},
                                TinyModel{"Transposed", "gpt2", R"({"n_embd": 32, "n_head": 8})"}, kTinyExperts}) {
    const Model model = example_model({.fixture = tiny.fixture, .sizes = tiny.sizes});
    uint64_t seed = 1;
    for (uint64_t i = 0; i < draws(uint64_t{2}) && !testing::Test::HasFailure(); ++i, ++seed) {
      std::vector<Plan> plans;
      plans.push_back(random_strategy_plan(model, seed));
      plans.push_back(drawn_plan(model, ++seed, 8));
      plans.push_back(random_strategy_plan(model, seed));
      plans.push_back(random_strategy_plan(model, ++seed));
      OneRank one(model, kEpsilon);
      Expected expected;
      for (Plan& plan : plans) {
        plan.precision = {.compute = Precision::kFp64, .master = Precision::kFp64, .reduce = Precision::kFp64};
        add_steps(one, plan, 1, expected);
      }
      const ScratchFolder scratch;
      std::map<std::string, at::Tensor> weights;
      for (size_t k = 0; k < plans.size(); ++k) {
        const Plan& plan = plans[k];
        SCOPED_TRACE(
            fmt::format("{} {}: {} {}", tiny.name, seed, settings_text(plan), to_json(plan.llm().strategy).dump()));
        std::optional<Checkpoint> start;
        if (k > 0) start = *read_checkpoint(scratch / checkpoint_name(static_cast<int64_t>(k)));
        weights.clear();
        std::mutex guard;
        on_ranks(plan.world_size, [&](World& world) {
          const auto rank = rank_of(world, plan, k == 0 ? std::optional(kExampleSeed) : std::nullopt);
          if (start) {
            const auto error = load_checkpoint(*start, world.all(), rank->optimizers());
            WEFT_CHECK(!error, "{}", error->message());
          }
          take_steps(*rank, plan, expected, k, 1);
          const auto saved = save_checkpoint(
              {.checkpoints = scratch.path(), .step = static_cast<int64_t>(k + 1), .plan = plan, .chunk_bytes = 512},
              world.all(), rank->optimizers());
          WEFT_CHECK(saved.ok(), "{}", saved.error().message());
          rank->gather_values();
          const std::lock_guard lock(guard);
          collect_example_weights(*rank, weights);
        });
      }
      expect_weights(weights, one.weights());
    }
  }
}

// A weight that thaws has its own count of updates, whatever shares its buckets, and keeps it over further checkpoints.
TEST(Thaw, AModuleThawsAndFreezesBetweenCheckpoints) {
  const std::vector<SmallRun> runs = {{.fixture = "qwen2_vl_tied", .dp = 2, .zero = 1, .frozen = {ModuleKind::kVision}},
                                      {.fixture = "qwen2_vl_tied", .tp = 2, .dp = 2, .zero = 2},
                                      {.fixture = "qwen2_vl_tied", .pp = 2, .dp = 2, .zero = 0},
                                      {.fixture = "qwen2_vl_tied", .dp = 4, .zero = 3, .frozen = {ModuleKind::kLlm}},
                                      {.fixture = "qwen2_vl_tied", .tp = 2}};
  OneRank one(plan_of(runs[0]).model, kEpsilon);
  Expected expected;
  for (const SmallRun& run : runs) add_steps(one, plan_of(run), 2, expected);
  const ScratchFolder scratch;
  for (size_t i = 0; i < runs.size(); ++i) {
    SCOPED_TRACE(runs[i].text());
    const Plan plan = plan_of(runs[i]);
    std::optional<Checkpoint> start;
    if (i > 0) start = *read_checkpoint(scratch / checkpoint_name(2 * static_cast<int64_t>(i)));
    on_ranks(plan.world_size, [&](World& world) {
      const auto rank = rank_of(world, plan, kExampleSeed);
      if (start) {
        const auto error = load_checkpoint(*start, world.all(), rank->optimizers());
        WEFT_CHECK(!error, "{}", error->message());
      }
      take_steps(*rank, plan, expected, 2 * i, 2);
      const auto saved = save_checkpoint(
          {.checkpoints = scratch.path(), .step = 2 * static_cast<int64_t>(i + 1), .plan = plan, .chunk_bytes = 4096},
          world.all(), rank->optimizers());
      WEFT_CHECK(saved.ok(), "{}", saved.error().message());
    });
  }
}

/// What another plan must hold of what a plan held: the same bits, moments of no updates where there were none.
void expect_moved(const ElementStates& before, const ElementStates& after) {
  ASSERT_EQ(before.size(), after.size());
  for (const auto& [name, elements] : after) {
    const auto& held = before.at(name);
    ASSERT_EQ(elements.size(), held.size()) << name;
    for (size_t i = 0; i < elements.size(); ++i) {
      ASSERT_FALSE(elements[i].empty()) << name << "[" << i << "] is nobody's";
      for (const ElementState& state : elements[i]) {
        const bool is_moved = std::any_of(held[i].begin(), held[i].end(), [&](ElementState copy) {
          if (state.updates < 0) copy = {.bits = {copy.bits[0], 0, 0}};
          if (state.updates >= 0 && copy.updates < 0) copy.updates = 0;
          return copy == state;
        });
        ASSERT_TRUE(is_moved) << name << "[" << i << "]";
      }
    }
  }
}

TEST_P(Reshard, ARunningJobChangesItsPlanBetweenTwoSteps) {
  const Model model = this->model();
  const char* wanted = std::getenv("WEFT_PLAN_SWITCHES");
  const uint64_t count = wanted != nullptr ? std::stoull(wanted) : draws(uint64_t{4});
  constexpr int64_t kRanks = 8;
  std::vector<Plan> plans;
  for (uint64_t i = 0; i <= count; ++i) plans.push_back(drawn_plan(model, 7000 + i, kRanks));
  OneRank one(model, kLongEpsilon, kLongRate), nearly(model, kLongEpsilon, kLongRate);
  nearly.disturb(1e-15);
  Expected expected, nearly_expected;
  for (const Plan& plan : plans) {
    add_steps(one, plan, 1, expected);
    add_steps(nearly, plan, 1, nearly_expected);
  }
  // What ranks are held to below then means something: rounding alone does not come near it.
  expect_weights(nearly.weights(), one.weights(), 0.01 * kTolerance);
  std::map<std::string, at::Tensor> weights;
  std::mutex guard;
  std::vector<OwnedElements> held(static_cast<size_t>(kRanks));
  std::vector<ElementStates> states_before(plans.size()), states_after(plans.size());
  std::atomic<int64_t> moved = 0, least = 0;
  on_ranks(kRanks, [&](World& world) {
    std::unique_ptr<TrainingRank> rank = rank_of(world, plans[0], kExampleSeed, kLongEpsilon);
    const auto note_states = [&](ElementStates& states) {
      const std::lock_guard lock(guard);
      add_states(rank->optimizers(), states);
    };
    take_steps(*rank, plans[0], expected, 0, 1, kLongRate);
    for (size_t i = 1; i < plans.size(); ++i) {
      held[static_cast<size_t>(world.rank())] = owned_elements(rank->optimizers());
      world.all().barrier().wait();
      const OwnedElements there = united(held);
      std::unique_ptr<TrainingRank> next = rank_of(world, plans[i], std::nullopt, kLongEpsilon);
      MovedBytes bytes;
      const auto error = move_states(world.all(), rank->optimizers(), next->optimizers(), &bytes);
      WEFT_CHECK(!error, "{}", error->message());
      moved += bytes.received;
      least += least_moved_bytes(held[static_cast<size_t>(world.rank())], owned_elements(next->optimizers()), there,
                                 sizeof(double));
      note_states(states_before[i]);
      rank = std::move(next);
      note_states(states_after[i]);
      world.all().barrier().wait();
      if (world.rank() == 0) {
        expect_moved(states_before[i], states_after[i]);
        states_before[i].clear();
        states_after[i].clear();
      }
      SCOPED_TRACE(fmt::format("switch {}: {} -> {}", i, settings_text(plans[i - 1]), settings_text(plans[i])));
      take_steps(*rank, plans[i], expected, i, 1, kLongRate);
    }
    rank->gather_values();
    const std::lock_guard lock(guard);
    collect_example_weights(*rank, weights);
  });
  expect_weights(weights, one.weights());
  EXPECT_GT(least.load(), 0);
  EXPECT_LE(static_cast<double>(moved.load()), 1.1 * static_cast<double>(least.load()));
}

INSTANTIATE_TEST_SUITE_P(Models, Reshard, tiny_models(), [](const auto& test) { return test.param.name; });
// Families whose weights no other model here has: biases of projections, norms of heads, dense layers between experts.
INSTANTIATE_TEST_SUITE_P(OtherModels, Reshard,
                         testing::Values(TinyModel{"Biases", "qwen2_tied", "{}"}, TinyModel{"HeadNorms", "qwen3", "{}"},
                                         TinyModel{"MixedExperts", "qwen3_moe_mixed", "{}"}),
                         [](const auto& test) { return test.param.name; });

// Every byte that is used is checked, and hardly any other is read: also where a weight is cut by columns.
TEST(ReshardBytes, LoadingReadsWhatTheNewRanksNeed) {
  const TrainingExample example{
      .fixture = "llama_tied",
      .sizes = R"({"hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 8, "num_key_value_heads": 4,
                   "head_dim": 32})"};
  const Model model = example_model(example);
  const auto plan_with = [&](TrainingExample settings) {
    settings.fixture = example.fixture;
    settings.sizes = example.sizes;
    settings.precision = {.compute = Precision::kFp32, .master = Precision::kFp32, .reduce = Precision::kFp32};
    Plan plan = example_training_plan(settings, model);
    add_surroundings(plan);
    return plan;
  };
  const std::vector<Plan> plans = {plan_with({.tp = 2, .dp = 2, .zero = 1}), plan_with({.tp = 4, .dp = 2, .zero = 3}),
                                   plan_with({.tp = 1, .pp = 2, .dp = 2, .zero = 0}), plan_with({}),
                                   plan_with({.tp = 2, .pp = 2, .zero = 0})};
  for (const Plan& before : plans) {
    const ScratchFolder scratch;
    on_ranks(before.world_size, [&](World& world) {
      const auto rank = rank_of(world, before, kExampleSeed);
      const auto saved =
          save_checkpoint({.checkpoints = scratch.path(), .step = 2, .plan = before, .chunk_bytes = 4096}, world.all(),
                          rank->optimizers());
      WEFT_CHECK(saved.ok(), "{}", saved.error().message());
    });
    const Checkpoint checkpoint = *read_checkpoint(scratch / "step-00000002");
    for (const Plan& after : plans) {
      std::atomic<int64_t> read = 0, wanted = 0;
      std::vector<OwnedElements> held(static_cast<size_t>(after.world_size));
      on_ranks(after.world_size, [&](World& world) {
        const auto rank = rank_of(world, after, std::nullopt);
        held[static_cast<size_t>(world.rank())] = owned_elements(rank->optimizers());
        MovedBytes bytes;
        const auto error = load_checkpoint(checkpoint, world.all(), rank->optimizers(), &bytes);
        WEFT_CHECK(!error, "{}", error->message());
        read += bytes.read;
        wanted += bytes.wanted;
      });
      EXPECT_GT(read.load(), 0);
      EXPECT_LE(static_cast<double>(read.load()), 1.1 * static_cast<double>(wanted.load()))
          << before.world_size << " ranks -> " << after.world_size;
      // By other ranks than wrote it also of what several of them want alike, the tied table say, one copy is read.
      if (&before == &after) continue;
      const OwnedElements all = united(held);
      EXPECT_LE(static_cast<double>(read.load()),
                1.1 * static_cast<double>(least_moved_bytes({}, all, all, sizeof(float))))
          << settings_text(before) << " -> " << settings_text(after);
    }
  }
}

}  // namespace
}  // namespace weft::training
