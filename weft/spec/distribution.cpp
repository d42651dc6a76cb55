#include "weft/spec/distribution.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "weft/base/check.h"

namespace weft {
namespace {

using Outcome = Distribution::Outcome;

// Sums are listed one by one while they are few, then counted into bins: thousands of draws stay affordable.
constexpr size_t kMostOutcomes = 512;
constexpr size_t kMostExactPairs = 8 * kMostOutcomes;
constexpr size_t kMostItemOutcomes = 64;

/// Joins values of equal spacing between `low` and `high`, each bin at the mean of what falls into it.
class Bins {
 public:
  Bins(double low, double high, size_t count)
      : low_(low), width_((high - low) / static_cast<double>(count)), bins_(count) {}

  void add(double value, double probability) {
    const auto bin = static_cast<size_t>((value - low_) / width_);
    Outcome& joined = bins_[std::min(bins_.size() - 1, bin)];
    joined.value += probability * value;
    joined.probability += probability;
  }

  Distribution take() {
    for (Outcome& joined : bins_) {
      if (joined.probability > 0) joined.value /= joined.probability;
    }
    return Distribution::weighted(std::move(bins_));
  }

 private:
  double low_;
  double width_;
  std::vector<Outcome> bins_;
};

Distribution thinned(const Distribution& d, size_t most) {
  if (d.outcomes().size() <= most) return d;
  Bins bins(d.min(), d.max(), most);
  for (const auto& [value, probability] : d.outcomes()) bins.add(value, probability);
  return bins.take();
}

}  // namespace

Distribution Distribution::weighted(std::vector<Outcome> outcomes) {
  std::sort(outcomes.begin(), outcomes.end(), [](const Outcome& a, const Outcome& b) { return a.value < b.value; });
  std::vector<Outcome> joined;
  double total = 0;
  for (const Outcome& outcome : outcomes) {
    if (outcome.probability <= 0) continue;
    total += outcome.probability;
    if (!joined.empty() && joined.back().value == outcome.value) {
      joined.back().probability += outcome.probability;
    } else {
      joined.push_back(outcome);
    }
  }
  WEFT_CHECK(!joined.empty(), "a distribution needs an outcome with positive weight");
  // Weights that sum to 1 but for rounding stay as they are, so that writing and reading changes nothing.
  if (std::abs(total - 1) > 1e-9) {
    for (Outcome& outcome : joined) outcome.probability /= total;
    // The smallest weights there are become zero beside larger ones.
    std::erase_if(joined, [](const Outcome& outcome) { return outcome.probability <= 0; });
  }
  return Distribution(std::move(joined));
}

double Distribution::mean() const {
  double mean = 0;
  for (const Outcome& outcome : outcomes_) mean += outcome.probability * outcome.value;
  return mean;
}

Json to_json(const Distribution& distribution) {
  // Whole numbers are written without a fraction, as a person would.
  const auto number = [](double value) {
    return value == std::floor(value) && std::abs(value) < 1e15 ? Json(static_cast<int64_t>(value)) : Json(value);
  };
  if (distribution.is_constant()) return number(distribution.min());
  Json values = Json::array(), weights = Json::array();
  for (const auto& [value, probability] : distribution.outcomes()) {
    values.push_back(number(value));
    weights.push_back(probability);
  }
  return {{"values", values}, {"weights", weights}};
}

Distribution sum(const Distribution& a, const Distribution& b) {
  const Distribution x = thinned(a, kMostOutcomes);
  const Distribution y = thinned(b, kMostOutcomes);
  const auto for_each_pair = [&](auto use) {
    for (const auto& [first, p] : x.outcomes()) {
      for (const auto& [second, q] : y.outcomes()) use(first + second, p * q);
    }
  };
  const size_t num_pairs = x.outcomes().size() * y.outcomes().size();
  if (num_pairs > kMostExactPairs) {
    Bins bins(x.min() + y.min(), x.max() + y.max(), kMostOutcomes);
    for_each_pair([&](double value, double probability) { bins.add(value, probability); });
    return bins.take();
  }
  std::vector<Outcome> sums;
  sums.reserve(num_pairs);
  for_each_pair([&](double value, double probability) { sums.push_back({value, probability}); });
  return thinned(Distribution::weighted(std::move(sums)), kMostOutcomes);
}

Distribution sum_of_draws(const Distribution& count, const Distribution& item) {
  std::vector<Outcome> mixture;
  if (item.is_constant()) {
    for (const Outcome& n : count.outcomes()) mixture.push_back({n.value * item.mean(), n.probability});
    return Distribution::weighted(std::move(mixture));
  }
  const Distribution step = thinned(item, kMostItemOutcomes);
  Distribution drawn = Distribution::constant(0);
  double draws = 0;
  for (const Outcome& n : count.outcomes()) {
    for (; draws < n.value; ++draws) drawn = sum(drawn, step);
    for (const Outcome& total : drawn.outcomes()) mixture.push_back({total.value, total.probability * n.probability});
  }
  return thinned(Distribution::weighted(std::move(mixture)), kMostOutcomes);
}

namespace {

/// Reads one distribution value; complains and returns the range's minimum when it does not fit.
double read_value(const Json& value, const std::string& path, DistributionRange range, Fields& fields) {
  const bool is_fitting = value.is_number() && std::isfinite(value.get<double>()) && value.get<double>() >= range.min &&
                          value.get<double>() <= range.max &&
                          (!range.is_whole || value.get<double>() == std::floor(value.get<double>()));
  if (!is_fitting) {
    fields.findings().add(path, fmt::format("is {}, a {}number from {} to {} is needed", describe_value(value),
                                            range.is_whole ? "whole " : "", range.min, range.max));
    return range.min;
  }
  return value.get<double>();
}

}  // namespace

Distribution read_distribution(Fields& fields, std::string_view key, DistributionRange range) {
  Distribution harmless = Distribution::constant(range.min);
  const Json* raw = fields.raw(key);
  if (raw == nullptr) {
    fields.complain(key, "is missing", "Give a number, a list, or {values: [...], weights: [...]}.");
    return harmless;
  }
  const std::string path = fields.path_of(key);
  if (raw->is_array()) {
    std::vector<Outcome> outcomes;
    for (size_t i = 0; i < raw->size(); ++i) {
      outcomes.push_back({read_value((*raw)[i], fmt::format("{}[{}]", path, i), range, fields), 1.0});
    }
    if (outcomes.empty()) {
      fields.complain(key, "is an empty list, at least one value is needed");
      return harmless;
    }
    return Distribution::weighted(std::move(outcomes));
  }
  if (!raw->is_object()) return Distribution::constant(read_value(*raw, path, range, fields));

  Fields histogram = fields.object(key);
  const Json* values = histogram.raw("values");
  const Json* weights = histogram.raw("weights");
  histogram.reject_unknown();
  const bool has_lists = values != nullptr && values->is_array() && weights != nullptr && weights->is_array();
  if (!has_lists || values->size() != weights->size() || values->empty()) {
    fields.complain(key, "needs two lists of the same length, values and weights, with at least one entry");
    return harmless;
  }
  std::vector<Outcome> outcomes;
  double total = 0;
  for (size_t i = 0; i < values->size(); ++i) {
    outcomes.push_back({read_value((*values)[i], fmt::format("{}.values[{}]", path, i), range, fields),
                        read_value((*weights)[i], fmt::format("{}.weights[{}]", path, i), {0, 1e12, false}, fields)});
    total += outcomes.back().probability;
  }
  if (total <= 0) {
    fields.complain(key, "has no positive weight, at least one is needed");
    return harmless;
  }
  return Distribution::weighted(std::move(outcomes));
}

}  // namespace weft
