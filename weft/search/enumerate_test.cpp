#include "weft/search/enumerate.h"

#include <set>

#include <gtest/gtest.h>

namespace weft::enumerate_test {
namespace {

FrameChoices with_choices(const std::array<size_t, kMostEncoders>& counts) {
  FrameChoices choices;
  for (size_t e = 0; e < kMostEncoders; ++e) {
    for (size_t i = 0; i < counts[e]; ++i) choices.encoders[e].push_back({.tp = static_cast<int64_t>(i + 1)});
  }
  choices.schedules = {{ScheduleName::k1f1b, 1}, {ScheduleName::kInterleaved1f1b, 2}};
  choices.zeros = {{0, false}, {3, false}, {3, true}};
  return choices;
}

TEST(EncoderCombinations, AreAllOfThemInTheOrderOfNumbersWithTheseDigits) {
  for (size_t first = 1; first <= 4; ++first) {
    for (size_t second = 1; second <= 4; ++second) {
      const std::vector<EncoderIndices> found = encoder_combinations(with_choices({first, second}));
      ASSERT_EQ(found.size(), first * second);
      for (size_t i = 1; i < found.size(); ++i) EXPECT_LT(found[i - 1], found[i]);
      EXPECT_EQ(found.front(), (EncoderIndices{0, 0}));
      EXPECT_EQ(found.back(), (EncoderIndices{first - 1, second - 1}));
    }
  }
}

TEST(EncoderCombinations, AreNoneWhereAnEncoderHasNoChoice) {
  EXPECT_TRUE(encoder_combinations(with_choices({3, 0})).empty());
  EXPECT_TRUE(encoder_combinations(with_choices({0, 3})).empty());
}

TEST(EnumerateCandidates, ListsEveryCombinationOnce) {
  const FrameChoices choices = with_choices({3, 2});
  const std::vector<Candidate> candidates = enumerate_candidates({.tp = 8}, choices);
  ASSERT_EQ(static_cast<int64_t>(candidates.size()), choices.size());
  std::set<std::tuple<int64_t, int64_t, ScheduleName, int64_t, int64_t, bool>> distinct;
  for (const Candidate& c : candidates) {
    EXPECT_EQ(c.tp, 8);
    distinct.insert({c.encoders[0].tp, c.encoders[1].tp, c.schedule, c.vpp, c.zero, c.zero_keep_gathered});
  }
  EXPECT_EQ(distinct.size(), candidates.size());
}

}  // namespace
}  // namespace weft::enumerate_test
