#include "weft/base/divisors.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

TEST(Divisors, AreAllNumbersThatDivide) {
  for (int64_t number = 1; number <= 2000; ++number) {
    std::vector<int64_t> expected;
    for (int64_t d = 1; d <= number; ++d) {
      if (number % d == 0) expected.push_back(d);
    }
    EXPECT_EQ(divisors(number), expected) << number;
  }
}

}  // namespace
}  // namespace weft
