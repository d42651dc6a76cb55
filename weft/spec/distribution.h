#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "weft/base/fields.h"

namespace weft {

/// A finite random quantity: values in ascending order with their probabilities, which sum to 1.
class Distribution {
 public:
  struct Outcome {
    double value;
    double probability;

    bool operator==(const Outcome&) const = default;
  };

  static Distribution constant(double value) { return Distribution({{value, 1.0}}); }
  /// From values with weights of any positive sum; equal values are joined.
  static Distribution weighted(std::vector<Outcome> outcomes);

  std::span<const Outcome> outcomes() const { return outcomes_; }
  bool is_constant() const { return outcomes_.size() == 1; }
  double mean() const;
  double min() const { return outcomes_.front().value; }
  double max() const { return outcomes_.back().value; }

  bool operator==(const Distribution&) const = default;

 private:
  explicit Distribution(std::vector<Outcome> outcomes) : outcomes_(std::move(outcomes)) {}

  std::vector<Outcome> outcomes_;
};

/// The sum of two independent quantities. Exact while there are at most a few hundred different sums; beyond that
/// neighbouring sums are joined at their mean, which keeps the mean exact and the mean square to about one in 10⁴.
Distribution sum(const Distribution& a, const Distribution& b);

/// The sum of a random, whole number of independent draws of `item`.
Distribution sum_of_draws(const Distribution& count, const Distribution& item);

/// As read_distribution reads it: a number, or a histogram.
Json to_json(const Distribution& distribution);

struct DistributionRange {
  double min;
  double max;
  bool is_whole;  ///< only whole numbers
};

/// Reads a number (always that value), a list (each entry equally likely), or a histogram
/// {values: [...], weights: [...]}.
Distribution read_distribution(Fields& fields, std::string_view key, DistributionRange range);

}  // namespace weft
