#include "weft/tensor/rank_threads.h"

#include <algorithm>
#include <filesystem>
#include <thread>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

namespace weft {
namespace {

size_t num_threads_of_process() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return static_cast<size_t>(std::distance(begin(tasks), end(tasks)));
}

/// Products large enough that an operator with more threads uses them, on threads that are like ranks.
size_t threads_of_two_ranks(int num_threads) {
  size_t most[2] = {0, 0};
  std::vector<std::thread> ranks;
  for (size_t& seen : most) {
    ranks.emplace_back([&seen, num_threads] {
      use_rank_threads(num_threads);
      EXPECT_EQ(at::get_num_threads(), num_threads);
      const at::Tensor x = at::ones({512, 512});
      for (int i = 0; i < 8; ++i) {
        (void)at::mm(x, x).add_(x).exp_();
        seen = std::max(seen, num_threads_of_process());
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
  return std::max(most[0], most[1]);
}

TEST(RankThreads, UseAllCoresAndNoneTwice) {
  EXPECT_EQ(threads_per_rank(16, 4), 4);
  EXPECT_EQ(threads_per_rank(16, 3), 5);
  EXPECT_EQ(threads_per_rank(2, 8), 1);
}

TEST(RankThreads, ARankOfOneThreadStartsNoOther) {
  const size_t before = num_threads_of_process();
  EXPECT_LE(threads_of_two_ranks(1), before + 2);
}

TEST(RankThreads, ARankOfThreeThreadsHasThreeOfItsOwn) {
  const size_t before = num_threads_of_process();
  // Whichever rank looks last sees its own two helpers at least, besides itself.
  EXPECT_GE(threads_of_two_ranks(3), before + 3);
}

}  // namespace
}  // namespace weft
