#include "weft/tensor/page_pool.h"

#include <sys/resource.h>

#include <gtest/gtest.h>

#include "weft/tensor/memory_count.h"

namespace weft {
namespace {

constexpr int64_t kElements = int64_t{8} << 20;  // 32 MiB
constexpr int64_t kBytes = kElements * 4;
const at::TensorOptions kFloats = at::TensorOptions().dtype(at::kFloat);

int64_t minor_faults() {
  rusage used{};
  getrusage(RUSAGE_THREAD, &used);
  return used.ru_minflt;
}

TEST(PagePool, GivesPagesThatWereGivenBackWithoutFaults) {
  PagePool pool;
  const auto faults_of_use = [&] {
    const int64_t before = minor_faults();
    EXPECT_EQ(pool.zeros(kElements, kFloats).sum().item<float>(), 0);
    return minor_faults() - before;
  };
  // Fewer where pages are large. A machine that is short of memory may take some of those that were given back.
  const int64_t first = faults_of_use();
  EXPECT_LT(faults_of_use(), first / 2);
}

TEST(PagePool, TensorsThatAreThereTogetherLieApart) {
  PagePool pool;
  const at::Tensor first = pool.zeros(kElements, kFloats), second = pool.zeros(kElements, kFloats);
  first.fill_(1);
  EXPECT_EQ(second.sum().item<float>(), 0);
  const at::Tensor part = pool.empty(kElements, kFloats).narrow(0, 5, 7);
  part.fill_(3);
  pool.zeros(kElements, kFloats);  // not where the part still lies
  EXPECT_EQ(part.sum().item<float>(), 21);
}

TEST(PagePool, WhatWasGivenBackIsZeroedWhereThatIsAsked) {
  PagePool pool;
  pool.empty(kElements, kFloats).fill_(5);
  EXPECT_EQ(pool.zeros(kElements, kFloats).sum().item<float>(), 0);
  pool.empty(kElements, kFloats).fill_(5);
  EXPECT_EQ(pool.zeros(kElements / 2, at::kDouble).sum().item<double>(), 0);
}

TEST(PagePool, CountsWhatTensorsHoldAndNotWhatItKeeps) {
  const auto count = std::make_shared<MemoryCount>();
  const CountedThread counted(count);
  PagePool pool;
  for (int round = 0; round < 3; ++round) {
    at::Tensor flat = pool.empty(kElements, kFloats);
    EXPECT_EQ(count->current_bytes(), kBytes);
    flat.reset();
    EXPECT_EQ(count->current_bytes(), 0);
    const at::Tensor small = pool.empty(100, kFloats);
    EXPECT_EQ(count->current_bytes(), 400);
  }
  EXPECT_EQ(count->peak_bytes(), kBytes);
}

TEST(PagePool, ATensorOutlivesItsPool) {
  at::Tensor left;
  {
    PagePool pool;
    left = pool.zeros(kElements, kFloats);
  }
  left.fill_(2);
  EXPECT_EQ(left[kElements - 1].item<float>(), 2);
}

}  // namespace
}  // namespace weft
