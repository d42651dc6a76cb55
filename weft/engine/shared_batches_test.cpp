#include "weft/engine/shared_batches.h"

#include <atomic>

#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

namespace weft {
namespace {

constexpr auto kLlm = ModuleKind::kLlm;

TEST(SharedBatches, AreMadeOnceForAllRanksThatNeedTheSameSamples) {
  SharedBatches batches;
  std::atomic<int> num_made = 0;
  const auto make = [&] {
    LocalBatch local{.num_tokens = static_cast<double>(++num_made)};
    local.batch.microbatches.emplace_back().ids = at::zeros({3}, at::kLong);
    return local;
  };
  const LocalBatch first = batches.get({{kLlm, 0}}, {.step = 0}, make).get();
  const LocalBatch second = batches.get({{kLlm, 0}}, {.step = 0}, make).get();
  EXPECT_EQ(num_made, 1);
  EXPECT_TRUE(first.batch.microbatches[0].ids.is_same(second.batch.microbatches[0].ids));
  EXPECT_EQ(batches.get({{kLlm, 1}}, {.step = 0}, make).get().num_tokens, 2) << "of another data-parallel rank";
  EXPECT_EQ(batches.get({{kLlm, 0}, {ModuleKind::kVision, 0}}, {.step = 0}, make).get().num_tokens, 3) << "with images";
  EXPECT_EQ(batches.get({{kLlm, 0}}, {.step = 1}, make).get().num_tokens, 4) << "the next one";
}

TEST(SharedBatches, TellAllRanksWhatMakingOneThrew) {
  SharedBatches batches;
  const auto make = []() -> LocalBatch { throw std::bad_alloc(); };
  EXPECT_THROW(batches.get({{kLlm, 0}}, {.step = 0}, make).get(), std::bad_alloc);
  EXPECT_THROW(batches.get({{kLlm, 0}}, {.step = 0}, make).get(), std::bad_alloc);
}

}  // namespace
}  // namespace weft
