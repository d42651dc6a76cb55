#include "weft/spec/distribution.h"

#include <cmath>
#include <map>

#include <gtest/gtest.h>

namespace weft {
namespace {

double mean_square(const Distribution& d) {
  double total = 0;
  for (const auto& [value, probability] : d.outcomes()) total += probability * value * value;
  return total;
}

/// The law of a sum of `draws` items, by listing every sequence of draws.
std::map<double, double> enumerate(const Distribution& item, int draws) {
  std::map<double, double> law = {{0.0, 1.0}};
  for (int i = 0; i < draws; ++i) {
    std::map<double, double> next;
    for (const auto& [total, p] : law) {
      for (const auto& [value, q] : item.outcomes()) next[total + value] += p * q;
    }
    law = std::move(next);
  }
  return law;
}

TEST(Distribution, JoinsEqualValuesAndNormalises) {
  const Distribution d = Distribution::weighted({{4, 1}, {2, 1}, {4, 2}, {9, 0}});
  ASSERT_EQ(d.outcomes().size(), 2u);
  EXPECT_EQ(d.outcomes()[0], (Distribution::Outcome{2, 0.25}));
  EXPECT_EQ(d.outcomes()[1], (Distribution::Outcome{4, 0.75}));
  EXPECT_EQ(d.mean(), 3.5);
  EXPECT_EQ(d.max(), 4) << "a value of weight zero never occurs";
}

TEST(Distribution, WeightsThatVanishBesideOthersAreNone) {
  const Distribution d = Distribution::weighted({{4, 1e6}, {2, 5e-324}});
  EXPECT_EQ(d, Distribution::constant(4));
  EXPECT_EQ(Distribution::weighted({{2, 5e-324}}), Distribution::constant(2));
}

TEST(Distribution, SumOfDrawsEqualsFullEnumeration) {
  const Distribution item = Distribution::weighted({{64, 1}, {100, 2}, {256, 3}});
  const Distribution count = Distribution::weighted({{0, 0.2}, {1, 0.3}, {4, 0.5}});
  std::map<double, double> expected;
  for (const auto& [n, p] : count.outcomes()) {
    for (const auto& [total, q] : enumerate(item, static_cast<int>(n))) expected[total] += p * q;
  }
  const Distribution got = sum_of_draws(count, item);
  ASSERT_EQ(got.outcomes().size(), expected.size());
  for (const auto& [value, probability] : got.outcomes()) EXPECT_NEAR(probability, expected.at(value), 1e-14) << value;
}

TEST(Distribution, ThinningKeepsTheMeanAndNearlyTheMeanSquare) {
  std::vector<Distribution::Outcome> sizes;
  for (int i = 0; i < 400; ++i) sizes.push_back({100.0 + 7.0 * i, 1.0 + i % 3});
  const Distribution item = Distribution::weighted(std::move(sizes));
  const Distribution total = sum_of_draws(Distribution::constant(64), item);
  EXPECT_LE(total.outcomes().size(), 512u);
  EXPECT_NEAR(total.mean() / (64 * item.mean()), 1.0, 1e-12);
  const double variance = mean_square(item) - item.mean() * item.mean();
  const double exact = 64 * variance + std::pow(64 * item.mean(), 2);
  EXPECT_NEAR(mean_square(total) / exact, 1.0, 2e-4);
}

TEST(Distribution, ManyDrawsOfManySizesStayAffordable) {
  std::vector<Distribution::Outcome> sizes;
  for (int i = 0; i < 5000; ++i) sizes.push_back({1.0 + i, 1.0});
  const Distribution item = Distribution::weighted(std::move(sizes));
  EXPECT_NEAR(sum_of_draws(Distribution::constant(4096), item).mean() / (4096 * item.mean()), 1.0, 1e-9);
}

/// Reads "d" of a YAML text; the message of the first finding, or the mean.
std::string read(std::string_view text, DistributionRange range = {0, 100, true}) {
  const Document document = *parse_document(text, "w.yaml", Syntax::kYaml);
  Findings findings(document.source);
  Fields fields(document, findings);
  const Distribution d = read_distribution(fields, "d", range);
  return findings.first() ? findings.first()->message() : "mean " + std::to_string(d.mean());
}

TEST(Distribution, ReadsNumbersListsAndHistograms) {
  EXPECT_EQ(read("d: 5"), "mean 5.000000");
  EXPECT_EQ(read("d: [1, 2, 3, 2]"), "mean 2.000000");
  EXPECT_EQ(read("d: {values: [10, 20], weights: [3, 1]}"), "mean 12.500000");
  EXPECT_EQ(read("d: 2.5", {0, 10, false}), "mean 2.500000");
}

TEST(Distribution, BadFormsNameTheEntry) {
  EXPECT_EQ(read("d: [1, -2]"), "w.yaml: d[1]: is the number -2, a whole number from 0 to 100 is needed");
  EXPECT_EQ(read("d: [1, 2.5]"), "w.yaml: d[1]: is the number 2.5, a whole number from 0 to 100 is needed");
  EXPECT_EQ(read("d: []"), "w.yaml: d: is an empty list, at least one value is needed");
  EXPECT_EQ(read("d: {values: [1], weights: [.nan]}"),
            "w.yaml: d.weights[0]: is the number nan, a number from 0 to 1000000000000 is needed");
  EXPECT_EQ(read("d: {values: [1, 2], weights: [1]}"),
            "w.yaml: d: needs two lists of the same length, values and weights, with at least one entry");
  EXPECT_EQ(read("d: {values: [1], weights: [0]}"), "w.yaml: d: has no positive weight, at least one is needed");
  EXPECT_EQ(read("d: {values: [1], weight: [1]}"),
            "w.yaml: d.weight: is not a known field; known are values or weights. Correct or remove it. Did you mean "
            "'weights'?");
  EXPECT_EQ(read("e: 1"), "w.yaml: d: is missing. Give a number, a list, or {values: [...], weights: [...]}.");
}

}  // namespace
}  // namespace weft
