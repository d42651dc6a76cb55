#include "weft/base/median.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

TEST(Medians, OfFewAndOfMany) {
  EXPECT_EQ(median_of({}), 0);
  EXPECT_EQ(median_of({3, 1, 2}), 2);
  EXPECT_EQ(median_of({4, 1, 2, 3}), 2.5);
  EXPECT_EQ(median_error({5}), 0);
  EXPECT_EQ(median_error({1, 2, 4}), 1.5);  // too few to leave any out
  std::vector<double> hundred;
  for (int i = 1; i <= 100; ++i) hundred.push_back(i);
  // The 40th and the 61st enclose the median of a hundred with 95 %: (100 ∓ 19.6) / 2.
  EXPECT_NEAR(median_error(hundred), 10.5, 1.01);
}

}  // namespace
}  // namespace weft
