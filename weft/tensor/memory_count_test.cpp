#include "weft/tensor/memory_count.h"

#include <thread>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

namespace weft {
namespace {

TEST(MemoryCount, CountsWhatIsHeldAndTheMost) {
  const auto count = std::make_shared<MemoryCount>();
  const CountedThread counted(count);
  at::Tensor first = at::empty({1000}, at::kFloat);
  EXPECT_EQ(count->current_bytes(), 4000);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(first.data_ptr()) % 64, 0u);
  {
    const at::Tensor second = at::zeros({100}, at::kDouble);
    const at::Tensor view = second.view({10, 10});
    EXPECT_EQ(count->current_bytes(), 4800);
  }
  EXPECT_EQ(count->current_bytes(), 4000);
  EXPECT_EQ(count->peak_bytes(), 4800);
  count->forget_peak();
  EXPECT_EQ(count->peak_bytes(), 4000);
  first.reset();
  EXPECT_EQ(count->current_bytes(), 0);
}

TEST(MemoryCount, AnotherThreadsFreesCountWhereItWasAllocated) {
  const auto mine = std::make_shared<MemoryCount>();
  const auto others = std::make_shared<MemoryCount>();
  const CountedThread counted(mine);
  at::Tensor x = at::empty({250}, at::kFloat);
  at::Tensor y;
  std::thread([&] {
    const CountedThread there(others);
    x.reset();
    y = at::empty({500}, at::kFloat);
    EXPECT_EQ(current_memory_count(), others);
  }).join();
  EXPECT_EQ(current_memory_count(), mine);
  EXPECT_EQ(mine->current_bytes(), 0);
  EXPECT_EQ(others->current_bytes(), 2000);
  y.reset();
  EXPECT_EQ(others->current_bytes(), 0);
}

TEST(MemoryCount, TensorsOutliveTheirCount) {
  at::Tensor x;
  {
    auto count = std::make_shared<MemoryCount>();
    const CountedThread counted(count);
    x = at::zeros({16}, at::kFloat);
    count.reset();
  }
  EXPECT_EQ(current_memory_count(), nullptr);
  EXPECT_EQ(x.sum().item<float>(), 0);
  x.resize_({64});
  EXPECT_EQ(x.numel(), 64);
}

}  // namespace
}  // namespace weft
