#include "weft/engine/worker_threads.h"

#include <atomic>
#include <chrono>
#include <stdexcept>

#include <gtest/gtest.h>

namespace weft {
namespace {

TEST(WorkerThreads, DoEveryPieceOnce) {
  for (const int64_t num_threads : {1, 2, 8}) {
    WorkerThreads workers(num_threads);
    EXPECT_EQ(workers.num_threads(), num_threads);
    for (const int64_t count : {0, 1, 5, 1000}) {
      std::vector<std::atomic<int>> done(static_cast<size_t>(count));
      workers.for_each(count, [&](int64_t i) { ++done[static_cast<size_t>(i)]; });
      for (const auto& times : done) EXPECT_EQ(times, 1);
    }
  }
}

TEST(WorkerThreads, ServeSeveralWhoAsk) {
  WorkerThreads workers(4);
  std::vector<std::atomic<int64_t>> sums(6);
  std::vector<std::thread> asking;
  for (auto& sum : sums) {
    asking.emplace_back([&workers, &sum] {
      for (int round = 0; round < 50; ++round) workers.for_each(40, [&](int64_t i) { sum += i; });
    });
  }
  for (std::thread& thread : asking) thread.join();
  for (const auto& sum : sums) EXPECT_EQ(sum, 50 * 780);
}

TEST(WorkerThreads, ThrowWhatWorkThrewOnceNothingRuns) {
  WorkerThreads workers(4);
  std::atomic<int> running = 0;
  const auto work = [&](int64_t i) {
    ++running;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    --running;
    if (i == 7) throw std::runtime_error("seven");
  };
  EXPECT_THROW(workers.for_each(100, work), std::runtime_error);
  EXPECT_EQ(running, 0);
  int64_t count = 0;
  WorkerThreads(1).for_each(3, [&](int64_t) { ++count; });
  EXPECT_EQ(count, 3) << "they go on";
}

}  // namespace
}  // namespace weft
