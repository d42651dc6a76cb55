#include "weft/meaning/weight_order.h"

#include <string>

#include <gtest/gtest.h>

namespace weft::weight_order_test {
namespace {

std::string forward_text(const WeightOrder& order) {
  std::string text;
  const auto write = [&](WeightStep step, size_t block) {
    text += "gsrec"[static_cast<size_t>(step)] + std::to_string(block) + " ";
  };
  for (size_t block = 0; block < order.num_blocks(); ++block) {
    order.before_forward(block, write);
    order.after_forward(block, write);
  }
  return text;
}

/// The backward tells of some blocks, as it comes by.
std::string backward_text(WeightOrder order, const std::vector<size_t>& told) {
  std::string text;
  const auto write = [&](WeightStep step, size_t block) {
    text += "gsrec"[static_cast<size_t>(step)] + std::to_string(block) + " ";
  };
  order.begin_backward();
  for (const size_t block : told) order.reach(block, write);
  order.end_backward(write);
  return text;
}

TEST(WeightOrder, ValuesOfTheNextBlockAreOnTheirWayWhileOneRuns) {
  const WeightOrder order({true, true, true});
  EXPECT_EQ(forward_text(order), "g0 s1 r0 g1 s2 r1 g2 r2 ");
  EXPECT_EQ(backward_text(order, {2, 1, 0}), "g2 s1 e2 c2 r2 g1 s0 e1 c1 r1 g0 e0 c0 r0 ");
}

TEST(WeightOrder, IsTheSameWhateverBlocksABackwardTellsOf) {
  const WeightOrder order({true, true, true});
  for (const std::vector<size_t>& told : {std::vector<size_t>{}, {1}, {2, 0}, {0}})
    EXPECT_EQ(backward_text(order, told), backward_text(order, {2, 1, 0}));
}

TEST(WeightOrder, ABackwardNeedsNoValuesOfBlocksThatItDoesNotReach) {
  EXPECT_EQ(backward_text(WeightOrder({false, false, true}), {2}), "g2 e2 c2 r2 ");
  EXPECT_EQ(backward_text(WeightOrder({false, false}), {}), "");
  EXPECT_EQ(backward_text(WeightOrder(std::vector<bool>()), {}), "");
}

}  // namespace
}  // namespace weft::weight_order_test
