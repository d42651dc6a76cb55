#include "weft/program/attends.h"

#include <vector>

#include <gtest/gtest.h>

namespace weft {
namespace {

TEST(Attends, ARankThatHasRowsAndHeads) {
  EXPECT_TRUE(attends(std::vector<int64_t>{2, 5, 16}, false));
  EXPECT_FALSE(attends(std::vector<int64_t>{2, 5, 0}, false));
  EXPECT_FALSE(attends(std::vector<int64_t>{0, 5, 16}, false));
  EXPECT_FALSE(attends(std::vector<int64_t>{2, 0, 16}, false));
}

TEST(Attends, WithoutRowsWhereRanksShareThemOut) {
  EXPECT_TRUE(attends(std::vector<int64_t>{1, 0, 16}, true));
  EXPECT_FALSE(attends(std::vector<int64_t>{1, 5, 0}, true));
  EXPECT_FALSE(attends(std::vector<int64_t>{0, 5, 16}, true));
}

}  // namespace
}  // namespace weft
