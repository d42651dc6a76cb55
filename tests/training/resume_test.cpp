#include <cstring>
#include <mutex>

#include <gtest/gtest.h>

#include "tests/support/weights/example_files.h"
#include "tests/training/small_run.h"
#include "weft/checkpoint/load_checkpoint.h"
#include "weft/checkpoint/save_checkpoint.h"

namespace weft::training {
namespace {

using State = std::vector<std::pair<std::string, at::Tensor>>;

/// What a run came to, by rank.
struct Outcome {
  explicit Outcome(int64_t size) : losses(static_cast<size_t>(size)), states(static_cast<size_t>(size)) {}

  std::vector<std::vector<double>> losses;
  std::vector<State> states;
};

void save(const std::filesystem::path& checkpoints, const Plan& plan, int64_t step, World& world, TrainingRank& rank) {
  const auto saved = save_checkpoint({.checkpoints = checkpoints, .step = step, .plan = plan, .run = {{"seed", 7}}},
                                     world.all(), rank.optimizers());
  WEFT_CHECK(saved.ok(), "{}", saved.error().message());
  EXPECT_FALSE(saved->warning);
}

class Resume : public testing::TestWithParam<SmallRun> {};

TEST_P(Resume, GoesOnBitForBit) {
  const Plan plan = plan_of(GetParam());
  const ScratchFolder scratch;
  Outcome straight(plan.world_size), resumed(plan.world_size);
  on_ranks(plan.world_size, [&](World& world) {
    const auto rank = make_rank(world, plan, 3);
    for (int64_t step = 1; step <= 6; ++step) {
      straight.losses[static_cast<size_t>(world.rank())].push_back(take_step(*rank, plan, step));
    }
    straight.states[static_cast<size_t>(world.rank())] = state_of(*rank);
  });
  on_ranks(plan.world_size, [&](World& world) {
    const auto rank = make_rank(world, plan, 3);
    for (int64_t step = 1; step <= 3; ++step) {
      resumed.losses[static_cast<size_t>(world.rank())].push_back(take_step(*rank, plan, step));
    }
    save(scratch / "checkpoints", plan, 3, world, *rank);
  });
  on_ranks(plan.world_size, [&](World& world) {
    const auto rank = make_rank(world, plan, 99);  // other weights than the run's
    const auto newest = newest_checkpoint(scratch / "checkpoints");
    const auto checkpoint = read_checkpoint(**newest);
    WEFT_CHECK(checkpoint.ok(), "{}", checkpoint.error().message());
    EXPECT_EQ(checkpoint->step, 3);
    EXPECT_EQ(checkpoint->run, Json({{"seed", 7}}));
    const auto error = load_checkpoint(*checkpoint, world.all(), rank->optimizers());
    WEFT_CHECK(!error, "{}", error->message());
    for (int64_t step = 4; step <= 6; ++step) {
      resumed.losses[static_cast<size_t>(world.rank())].push_back(take_step(*rank, plan, step));
    }
    resumed.states[static_cast<size_t>(world.rank())] = state_of(*rank);
  });
  EXPECT_EQ(resumed.losses, straight.losses);
  for (size_t rank = 0; rank < straight.states.size(); ++rank) expect_same(resumed.states[rank], straight.states[rank]);
}

std::vector<SmallRun> runs() {
  const PrecisionPlan mixed{.compute = Precision::kBf16, .master = Precision::kFp32, .reduce = Precision::kFp32};
  std::vector<SmallRun> all;
  all.push_back({});
  for (const int64_t zero : {0, 1, 2, 3}) {
    all.push_back({.dp = 2, .zero = zero, .buckets_mb = 0.01});
    all.push_back({.fixture = "qwen2_tied", .tp = 2, .pp = 2, .dp = 2, .zero = zero});
    all.push_back({.dp = 2, .zero = zero, .precision = mixed, .buckets_mb = 0.01});
  }
  all.push_back({.fixture = "qwen2_tied", .tp = 2, .sequence_parallel = true});
  all.push_back({.fixture = "qwen2_tied", .tp = 3});
  all.push_back({.fixture = "llama_bias", .tp = 2});
  all.push_back({.pp = 2});
  all.push_back({.pp = 2, .precision = mixed});
  all.push_back({.fixture = "llama_scaled", .pp = 2, .vpp = 2, .schedule = "interleaved_1f1b", .microbatches = 4});
  all.push_back({.fixture = "qwen2_tied", .pp = 2, .vpp = 2, .schedule = "zb_v", .microbatches = 4});
  all.push_back({.fixture = "qwen2_vl_tied", .pp = 2, .dp = 2, .zero = 1, .frozen = {ModuleKind::kVision}});
  all.push_back(
      {.fixture = "qwen2_vl_untied", .dp = 2, .zero = 3, .frozen = {ModuleKind::kVision}, .precision = mixed});
  all.push_back({.fixture = "qwen2_vl_tied", .tp = 2, .pp = 2, .frozen = {ModuleKind::kLlm}});
  all.push_back({.fixture = "qwen3_moe_mixed", .pp = 2, .dp = 2, .zero = 1});
  all.push_back({.fixture = "qwen3_moe_norm", .dp = 4, .ep = 2, .zero = 1});
  all.push_back({.fixture = "qwen2_vl_tied", .cp = 2, .dp = 2, .zero = 3, .buckets_mb = 0.01});
  all.push_back({.fixture = "qwen3_moe_norm", .cp = 4, .cp_ulysses = 2, .ep = 2});
  all.push_back({.fixture = "qwen3_moe_norm", .tp = 2, .dp = 2, .ep = 2});
  for (const int64_t zero : {0, 3}) {
    all.push_back({.fixture = "qwen3_moe_norm",
                   .tp = 2,
                   .dp = 2,
                   .ep = 2,
                   .sequence_parallel = true,
                   .experts_over_tp = true,
                   .zero = zero,
                   .buckets_mb = 0.01});
  }
  for (const int64_t zero : {2, 3}) {
    all.push_back({.fixture = "qwen3_moe_norm", .dp = 4, .ep = 2, .zero = zero, .buckets_mb = 0.01});
    all.push_back({.fixture = "qwen3_moe_norm", .dp = 4, .ep = 4, .zero = zero, .precision = mixed});
  }
  all.push_back(
      {.fixture = "qwen3_moe_norm", .pp = 2, .dp = 4, .ep = 2, .zero = 3, .schedule = "zb_h1", .microbatches = 4});
  // Modules on different ranks, cut differently.
  all.push_back({.fixture = "qwen2_vl_untied", .tp = 2, .zero = 0, .vision = SmallRun::Vision{.dp = 2, .zero = 1}});
  all.push_back(
      {.fixture = "qwen2_vl_tied", .pp = 2, .dp = 2, .zero = 1, .vision = SmallRun::Vision{.tp = 2, .dp = 2}});
  all.push_back(
      {.fixture = "qwen2_vl_untied", .tp = 2, .vision = SmallRun::Vision{.pp = 2, .dp = 1}, .precision = mixed});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Plans, Resume, testing::ValuesIn(runs()),
                         [](const auto& named) { return named.param.text(); });

}  // namespace
}  // namespace weft::training
