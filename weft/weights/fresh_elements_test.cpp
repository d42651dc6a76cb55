#include "weft/weights/fresh_elements.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "weft/weights/philox.h"

namespace weft {
namespace {

std::vector<float> drawn(uint64_t key, int64_t first, int64_t count, float deviation = 1) {
  std::vector<float> elements(static_cast<size_t>(count), NAN);
  draw_fresh_elements(key, first, deviation, elements);
  return elements;
}

TEST(Philox, GivesTheAnswersThatItsAuthorsPublished) {
  struct Known {
    PhiloxBlock counter;
    std::array<uint32_t, 2> key;
    PhiloxBlock answer;
  };
  constexpr uint32_t kOnes = 0xffffffff;
  const Known known[] = {
      {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
      {{kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
      {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
       {0xa4093822, 0x299f31d0},
       {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
  };
  for (const Known& one : known) EXPECT_EQ(philox_4x32_10(one.counter, one.key), one.answer);
}

TEST(FreshElements, AreBoxesAndMullersOfPhiloxInDoublePrecision) {
  constexpr uint64_t kKey = 0x0123456789abcdef;
  constexpr int64_t kBlocks = 32;  // of a stretch, in which words lie side by side
  // The last ones have counters beyond 32 bits.
  for (const int64_t first : {int64_t{0}, int64_t{128} * 1000, int64_t{1} << 40}) {
    constexpr int64_t kCount = 128 * 500;
    const std::vector<float> found = drawn(kKey, first, kCount);
    double worst = 0;
    for (int64_t i = 0; i < kCount; ++i) {
      const auto stretch = static_cast<uint64_t>((first + i) / (4 * kBlocks));
      const int64_t place = (first + i) % (4 * kBlocks);
      const uint64_t counter = stretch * kBlocks + static_cast<uint64_t>(place % kBlocks);
      const PhiloxBlock block = philox_4x32_10(
          {static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32), 0, 0}, {0x89abcdef, 0x01234567});
      const auto pair = static_cast<size_t>(place / kBlocks / 2);
      // Near 1 the rounding to single precision is more than all that follows.
      const double uniform = static_cast<double>(static_cast<float>(block[2 * pair] >> 1) + 1) / 0x1p31;
      const double angle = 2 * std::numbers::pi * block[2 * pair + 1] / 0x1p32;
      const double radius = std::sqrt(-2 * std::log(uniform));
      const double expected = radius * (place / kBlocks % 2 == 0 ? std::cos(angle) : std::sin(angle));
      worst = std::max(worst, std::abs(found[static_cast<size_t>(i)] - expected));
    }
    EXPECT_LT(worst, 3e-6);
  }
}

TEST(FreshElements, AnyPartIsTheSliceOfTheWhole) {
  constexpr int64_t kWhole = 10'000;
  std::mt19937_64 random(5);
  for (const int64_t origin : {int64_t{0}, (int64_t{1} << 34) - 777}) {
    const std::vector<float> whole = drawn(9, origin, kWhole, 0.02F);
    for (int example = 0; example < 300; ++example) {
      const auto a = static_cast<int64_t>(random() % (kWhole + 1)), b = static_cast<int64_t>(random() % (kWhole + 1));
      const int64_t begin = std::min(a, b);
      const int64_t end =
          example % 2 == 0 ? std::max(a, b) : std::min(begin + static_cast<int64_t>(random() % 9), kWhole);
      const std::vector<float> part = drawn(9, origin + begin, end - begin, 0.02F);
      EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + begin)) << begin << " to " << end;
    }
  }
}

TEST(FreshElements, AreNormallyDistributed) {
  constexpr int64_t kCount = 1 << 21;
  std::vector<float> elements = drawn(fresh_weight_key("model.embed_tokens.weight", 3), 0, kCount);
  std::array<double, 5> moments{};
  double neighbours = 0, halves = 0;
  for (size_t i = 0; i < elements.size(); ++i) {
    double power = 1;
    for (size_t k = 1; k < moments.size(); ++k) moments[k] += (power *= elements[i]) / kCount;
    if (i > 0) neighbours += static_cast<double>(elements[i]) * elements[i - 1] / kCount;
    if (i >= 32) halves += static_cast<double>(elements[i]) * elements[i - 32] / kCount;  // x and y of one pair
  }
  // Five deviations of each estimate.
  const double unit = 5 / std::sqrt(static_cast<double>(kCount));
  EXPECT_NEAR(moments[1], 0, unit);
  EXPECT_NEAR(moments[2], 1, unit * std::sqrt(2));
  EXPECT_NEAR(moments[3], 0, unit * std::sqrt(15));
  EXPECT_NEAR(moments[4], 3, unit * std::sqrt(96));
  EXPECT_NEAR(neighbours, 0, unit);
  EXPECT_NEAR(halves, 0, unit);
  // Kolmogorov and Smirnov: a larger distance comes once in a hundred thousand times.
  std::sort(elements.begin(), elements.end());
  double distance = 0;
  for (size_t i = 0; i < elements.size(); ++i) {
    const double expected = 0.5 * std::erfc(-elements[i] / std::sqrt(2.0));
    distance = std::max({distance, std::abs(static_cast<double>(i) / kCount - expected),
                         std::abs(static_cast<double>(i + 1) / kCount - expected)});
  }
  EXPECT_LT(distance, 2.47 / std::sqrt(static_cast<double>(kCount)));
  // The largest of two million is below 4.5 or above 6.2 once in a thousand times.
  EXPECT_GT(elements.back(), 4.5F);
  EXPECT_LT(elements.back(), 6.2F);
}

TEST(FreshElements, DifferByNameAndSeed) {
  const std::vector<float> one = drawn(fresh_weight_key("a.weight", 1), 0, 1000);
  for (const uint64_t other : {fresh_weight_key("a.weight", 2), fresh_weight_key("b.weight", 1)}) {
    const std::vector<float> two = drawn(other, 0, 1000);
    double product = 0;
    for (size_t i = 0; i < one.size(); ++i) product += static_cast<double>(one[i]) * two[i];
    EXPECT_LT(std::abs(product) / 1000, 5 / std::sqrt(1000.0));
  }
  EXPECT_EQ(drawn(fresh_weight_key("a.weight", 1), 0, 1000), one);
}

}  // namespace
}  // namespace weft
