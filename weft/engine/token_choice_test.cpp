#include "weft/engine/token_choice.h"

#include <cmath>

#include <gtest/gtest.h>

namespace weft {
namespace {

TEST(TokenChoice, DrawsEachTokenAsOftenAsItIsLikely) {
  const std::vector<double> logits = {0.3, -1.2, 2.0, 0.0, 1.1};
  constexpr double kTemperature = 0.7;
  std::vector<double> expected;
  double sum = 0;
  for (const double logit : logits) sum += std::exp(logit / kTemperature);
  for (const double logit : logits) expected.push_back(std::exp(logit / kTemperature) / sum);
  TokenChooser chooser({.temperature = kTemperature, .seed = 5}, 0, {});
  constexpr int kDraws = 40000;
  std::vector<int> counts(logits.size());
  for (int i = 0; i < kDraws; ++i) ++counts[static_cast<size_t>(chooser.choose(logits))];
  for (size_t i = 0; i < logits.size(); ++i) {
    const double deviation = std::sqrt(expected[i] * (1 - expected[i]) / kDraws);
    EXPECT_NEAR(static_cast<double>(counts[i]) / kDraws, expected[i], 5 * deviation) << i;
  }
}

TEST(TokenChoice, ASeedsTokensAreItsOwnAndTheSameEveryTime) {
  const std::vector<double> logits(50, 0.0);
  const auto drawn = [&](uint64_t seed, uint64_t prompt) {
    TokenChooser chooser({.temperature = 1, .seed = seed}, prompt, {});
    std::vector<int64_t> tokens;
    for (int i = 0; i < 20; ++i) tokens.push_back(chooser.choose(logits));
    return tokens;
  };
  EXPECT_EQ(drawn(1, 0), drawn(1, 0));
  EXPECT_NE(drawn(1, 0), drawn(2, 0));
  EXPECT_NE(drawn(1, 0), drawn(1, 1));
}

TEST(TokenChoice, TopPKeepsTheFewestThatHaveThatShare) {
  const std::vector<double> logits = {std::log(0.1), std::log(0.5), std::log(0.15), std::log(0.25)};
  const auto kept = [&](double top_p) {
    std::vector<size_t> tokens;
    const std::vector<double> probabilities = sampled_probabilities(logits, 1, top_p);
    double sum = 0;
    for (size_t i = 0; i < probabilities.size(); ++i) {
      sum += probabilities[i];
      if (probabilities[i] > 0) tokens.push_back(i);
    }
    EXPECT_NEAR(sum, 1, 1e-12);
    return tokens;
  };
  EXPECT_EQ(kept(1), (std::vector<size_t>{0, 1, 2, 3}));
  EXPECT_EQ(kept(0.8), (std::vector<size_t>{1, 2, 3}));
  EXPECT_EQ(kept(0.7), (std::vector<size_t>{1, 3}));
  EXPECT_EQ(kept(0.4), (std::vector<size_t>{1}));
  EXPECT_EQ(kept(0), (std::vector<size_t>{1})) << "one is always left";
}

TEST(TokenChoice, WhatWasSeenIsLessLikelyWhateverItsSign) {
  std::vector<double> logits = {2, -1, 3, 0.5};
  penalize_repetition(logits, {0, 1, 0, 77}, 2);
  EXPECT_EQ(logits, (std::vector<double>{1, -2, 3, 0.5}));
  // The likeliest is passed over once it was chosen.
  TokenChooser chooser({.repetition_penalty = 4}, 0, {});
  EXPECT_EQ(chooser.choose({3, 2, 1}), 0);
  EXPECT_EQ(chooser.choose({3, 2, 1}), 1);
  EXPECT_EQ(chooser.choose({3, 2, 1}), 2);
}

}  // namespace
}  // namespace weft
