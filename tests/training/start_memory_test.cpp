// Starting a run needs no more memory than its steps do.
#include <algorithm>
#include <mutex>

#include <gtest/gtest.h>

#include "tests/support/weights/example_files.h"
#include "tests/training/small_run.h"
#include "weft/checkpoint/initial_weights.h"
#include "weft/checkpoint/load_checkpoint.h"
#include "weft/checkpoint/save_checkpoint.h"
#include "weft/models/initialize.h"
#include "weft/models/load_weights.h"
#include "weft/models/network.h"
#include "weft/spec/model_reader.h"
#include "weft/tensor/memory_count.h"

namespace weft::training {
namespace {

enum class Source : uint8_t { kFresh, kFolder, kCheckpoint };

/// Samples of a few tokens through a model that is wide beside them, so that weights are what memory goes to.
Plan plan_of_wide_model(const SmallRun& run) {
  Plan plan = plan_of(run);
  Json config = plan.model.config;
  config["hidden_size"] = 192;
  config["head_dim"] = 32;
  config["intermediate_size"] = 512;
  config["vocab_size"] = 600;
  const auto model = read_model({.source = "wide", .root = std::move(config)}, "wide");
  WEFT_CHECK(model.ok(), "{}", model.error().message());
  plan.model = *model;
  return plan;
}

/// A folder with fresh weights of the model.
void write_folder(const std::filesystem::path& folder, const Model& model) {
  WholeParameters maker(at::TensorOptions().dtype(at::kFloat));
  const Network network = *Network::create(model, maker);
  initialize_weights(maker.all(), 5);
  FolderLayout layout{.files = {{.name = "model.safetensors", .metadata = {}, .weights = {}}}, .index_metadata = {}};
  for (const NamedShape& weight : list_weights(maker.all(), network.numbers().files).weights)
    layout.files.front().weights.push_back({.name = weight.name, .type = WeightType::kF32, .shape = weight.shape});
  const auto error = save_weights(folder, layout, maker.all(), network.numbers().files);
  WEFT_CHECK(!error, "{}", error->message());
}

/// Bytes of a rank's tensors.
struct Held {
  int64_t start_peak = 0;
  int64_t after_start = 0;
  int64_t step_peak = 0;
  int64_t largest_bucket = 0;  ///< of whole values
};

Held start_and_step(World& world, const Plan& plan, Source source, const ScratchFolder& scratch) {
  const auto count = std::make_shared<MemoryCount>();
  const CountedThread counted(count);
  const bool is_fresh = source == Source::kFresh;
  const auto made = TrainingRank::create(world, plan, {.seed = is_fresh ? std::optional<uint64_t>(5) : std::nullopt});
  WEFT_CHECK(made.ok(), "{}", made.error().message());
  TrainingRank& rank = **made;
  std::optional<Error> error;
  if (source == Source::kFolder) {
    error = load_initial_weights(*WeightFolder::open(scratch / "folder"), plan.model, world.all(), rank.optimizers());
  } else if (source == Source::kCheckpoint) {
    const auto checkpoint = read_checkpoint(scratch / "checkpoints" / "step-00000001");
    WEFT_CHECK(checkpoint.ok(), "{}", checkpoint.error().message());
    error = load_checkpoint(*checkpoint, world.all(), rank.optimizers());
  }
  WEFT_CHECK(!error, "{}", error->message());
  Held held{.start_peak = count->peak_bytes(), .after_start = count->current_bytes()};
  for (const StageOptimizer* optimizer : rank.optimizers()) {
    for (const BucketLayout& bucket : optimizer->buckets()) {
      const Parameter& first = *optimizer->parameters()[bucket.slots.front().parameter].parameter;
      held.largest_bucket =
          std::max(held.largest_bucket, bucket.num_elements * static_cast<int64_t>(first.value.element_size()));
    }
  }
  count->forget_peak();
  for (int64_t step = 1; step <= 2; ++step) EXPECT_GT(take_step(rank, plan, step), 0);
  held.step_peak = count->peak_bytes();
  return held;
}

std::vector<SmallRun> starting_runs() {
  const PrecisionPlan mixed{.compute = Precision::kBf16, .master = Precision::kFp32, .reduce = Precision::kFp32};
  const PrecisionPlan single{.compute = Precision::kFp32, .master = Precision::kFp32, .reduce = Precision::kFp32};
  std::vector<SmallRun> runs = {{.precision = single}, {.precision = mixed}, {.tp = 2, .precision = single}};
  for (const int64_t zero : {0, 1, 2, 3}) {
    runs.push_back({.dp = 4, .zero = zero, .precision = single, .buckets_mb = 0.5});
    runs.push_back({.dp = 4, .zero = zero, .precision = mixed, .buckets_mb = 0.5});
    runs.push_back({.tp = 2, .dp = 2, .zero = zero, .precision = single, .buckets_mb = 0.5});
  }
  runs.push_back({.pp = 2, .dp = 2, .zero = 3, .precision = single, .buckets_mb = 0.5});
  return runs;
}

class StartMemory : public testing::TestWithParam<SmallRun> {};

TEST_P(StartMemory, IsNoMoreThanThatOfSteps) {
  const Plan plan = plan_of_wide_model(GetParam());
  const ScratchFolder scratch;
  std::filesystem::create_directory(scratch / "folder");
  write_folder(scratch / "folder", plan.model);
  on_ranks(plan.world_size, [&](World& world) {
    const auto rank = make_rank(world, plan, 5);
    take_step(*rank, plan, 1);
    const auto saved = save_checkpoint({.checkpoints = scratch / "checkpoints", .step = 1, .plan = plan}, world.all(),
                                       rank->optimizers());
    WEFT_CHECK(saved.ok(), "{}", saved.error().message());
  });
  for (const Source source : {Source::kFresh, Source::kFolder, Source::kCheckpoint}) {
    std::mutex guard;
    on_ranks(plan.world_size, [&](World& world) {
      const Held held = start_and_step(world, plan, source, scratch);
      const std::lock_guard lock(guard);
      SCOPED_TRACE("source " + std::to_string(static_cast<int>(source)) + ", rank " + std::to_string(world.rank()));
      EXPECT_LE(held.start_peak, held.step_peak);
      // And no activations are needed to say so.
      EXPECT_LE(held.start_peak, held.after_start + held.largest_bucket);
      EXPECT_GT(held.after_start, 0);
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Plans, StartMemory, testing::ValuesIn(starting_runs()),
                         [](const auto& named) { return named.param.text(); });

}  // namespace
}  // namespace weft::training
