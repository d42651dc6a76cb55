#include "weft/cost/zero_exposure.h"

#include <algorithm>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace weft {
namespace {

constexpr ZeroTraffic kTraffic{.gather_ms = 5, .backward_gather_ms = 4, .scatter_ms = 7};

TEST(ZeroExposure, OneBlockHasNothingToHideBehind) {
  ZeroExposure zero(1);
  zero.add(kTraffic, 100, 100, true, 1);
  EXPECT_EQ(zero.forward_ms(), 5);
  EXPECT_EQ(zero.backward_ms(), 4 + 7);
}

TEST(ZeroExposure, EachGatherHidesBehindTheBlockBeforeIt) {
  ZeroExposure zero(0.5);
  zero.add(kTraffic, 6, 12, true, 4);
  // The first is waited for; three leave 5 − 3.
  EXPECT_EQ(zero.forward_ms(), 5 + 3 * 2);
  // Back: the last block's values; beside it those of the third; beside two blocks values and gradients, 11 − 6 each;
  // beside the first the second's gradients; then its own.
  EXPECT_EQ(zero.backward_ms(), 4 + 0 + 2 * 5 + 1 + 7);
}

TEST(ZeroExposure, WithoutOverlapEverythingIsExposed) {
  ZeroExposure zero(0);
  zero.add(kTraffic, 6, 12, true, 10);
  EXPECT_EQ(zero.forward_ms(), 50);
  EXPECT_EQ(zero.backward_ms(), 110);
}

TEST(ZeroExposure, AHeadThatComputesLongHidesOneBlockAndNoMore) {
  ZeroExposure zero(1);
  zero.add(kTraffic, 1, 1, true, 3);
  zero.add({}, 1000, 1000, true, 1);
  // The head's backward runs beside the third block's values alone.
  EXPECT_EQ(zero.backward_ms(), 0 + (4 - 1) + (4 + 7 - 1) + (7 - 1) + 7);
}

TEST(ZeroExposure, FrozenBlocksAreGatheredForTheForwardAlone) {
  ZeroExposure zero(0);
  zero.add({.gather_ms = 5}, 1, 0, false, 3);
  zero.add(kTraffic, 1, 1, true, 1);
  EXPECT_EQ(zero.forward_ms(), 20);
  EXPECT_EQ(zero.backward_ms(), 11);
}

TEST(ZeroExposure, EqualBlocksTogetherAreThoseBlocksOneByOne) {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> ms(0, 10);
  for (int round = 0; round < 200; ++round) {
    ZeroExposure together(0.8), one_by_one(0.8);
    for (int run = 0; run < 3; ++run) {
      const ZeroTraffic traffic{ms(random), ms(random), ms(random)};
      const double forward_ms = ms(random), backward_ms = ms(random);
      const int64_t count = 1 + static_cast<int64_t>(ms(random)) % 4;
      together.add(traffic, forward_ms, backward_ms, true, count);
      for (int64_t i = 0; i < count; ++i) one_by_one.add(traffic, forward_ms, backward_ms, true, 1);
    }
    EXPECT_NEAR(together.forward_ms(), one_by_one.forward_ms(), 1e-9);
    EXPECT_NEAR(together.backward_ms(), one_by_one.backward_ms(), 1e-9);
  }
}

/// What the search bounds layers with: each beside itself, and ends as far as they can hide something.
TEST(ZeroExposure, IsNoLessThanEachLayerBesideItselfLessWhatEndsCanHide) {
  std::mt19937 random(11);
  std::uniform_real_distribution<double> ms(0, 10);
  for (int round = 0; round < 2000; ++round) {
    constexpr double kOverlap = 0.8;
    const auto draw = [&] { return ZeroTraffic{ms(random), ms(random), ms(random)}; };
    const ZeroTraffic entry = draw(), layer = draw(), exit = draw();
    const double times[6] = {ms(random), ms(random), ms(random), ms(random), ms(random), ms(random)};
    const int64_t layers = 1 + round % 5;
    ZeroExposure zero(kOverlap);
    zero.add(entry, times[0], times[1], true, 1);
    zero.add(layer, times[2], times[3], true, layers);
    zero.add(exit, times[4], times[5], true, 1);
    const auto left = [&](double traffic_ms, double compute_ms) { return traffic_ms - kOverlap * compute_ms; };
    const auto count = static_cast<double>(layers);
    const double forward_ms = count * std::max(0.0, left(layer.gather_ms, times[2])) +
                              std::min(0.0, left(entry.gather_ms, times[0])) +
                              std::min(0.0, left(exit.gather_ms, times[4]));
    const double backward_ms = count * std::max(0.0, left(layer.backward_gather_ms + layer.scatter_ms, times[3])) +
                               std::min(0.0, left(entry.backward_gather_ms + entry.scatter_ms, times[1])) +
                               std::min(0.0, left(exit.backward_gather_ms + exit.scatter_ms, times[5]));
    EXPECT_GE(zero.forward_ms(), forward_ms - 1e-9);
    EXPECT_GE(zero.backward_ms(), backward_ms - 1e-9);
  }
}

}  // namespace
}  // namespace weft
