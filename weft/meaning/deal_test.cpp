#include "weft/meaning/deal.h"

#include <chrono>
#include <numeric>
#include <random>

#include <gtest/gtest.h>

namespace weft {
namespace {

TEST(Deal, BinsOfManyItemsAreEvenedOutInBoundedTime) {
  // All pairs of 300,000 items in each bin would take minutes.
  std::mt19937_64 random(5);
  std::vector<double> values(600'000);
  for (double& value : values) value = static_cast<double>(1 + random() % 100'000);
  values.front() = 1e9;  // more than all others of a bin, so that there is something to try
  const auto start = std::chrono::steady_clock::now();
  const std::vector<int32_t> bin_of = deal_longest_first(values, 2);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
  double sums[2] = {0, 0};
  for (size_t i = 0; i < values.size(); ++i) sums[bin_of[i]] += values[i];
  EXPECT_NEAR(sums[0], sums[1], 1e-3 * sums[0]);
}

}  // namespace
}  // namespace weft
