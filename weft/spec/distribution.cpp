#include "weft/spec/distribution.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "weft/base/check.h"

namespace weft {
namespace {

using Outcome = Distribution::Outcome;

constexpr size_t kMostOutcomes = 512;

/// Joins neighbours into at most kMostOutcomes outcomes of equal spacing, each at the mean of what it joins.
std::vector<Outcome> thinned(const std::vector<Outcome>& outcomes) {
  if (outcomes.size() <= kMostOutcomes) return outcomes;
  const double low = outcomes.front().value;
  const double width = (outcomes.back().value - low) / kMostOutcomes;
  std::vector<double> probability(kMostOutcomes, 0.0), weighted_value(kMostOutcomes, 0.0);
  for (const Outcome& outcome : outcomes) {
    const size_t bin = std::min(kMostOutcomes - 1, static_cast<size_t>((outcome.value - low) / width));
    probability[bin] += outcome.probability;
    weighted_value[bin] += outcome.probability * outcome.value;
  }
  std::vector<Outcome> joined;
  for (size_t bin = 0; bin < kMostOutcomes; ++bin) {
    if (probability[bin] > 0) joined.push_back({weighted_value[bin] / probability[bin], probability[bin]});
  }
  return joined;
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
  for (Outcome& outcome : joined) outcome.probability /= total;
  return Distribution(std::move(joined));
}

double Distribution::mean() const {
  double mean = 0;
  for (const Outcome& outcome : outcomes_) mean += outcome.probability * outcome.value;
  return mean;
}

Distribution sum(const Distribution& a, const Distribution& b) {
  std::vector<Outcome> sums;
  sums.reserve(a.outcomes().size() * b.outcomes().size());
  for (const Outcome& x : a.outcomes()) {
    for (const Outcome& y : b.outcomes()) sums.push_back({x.value + y.value, x.probability * y.probability});
  }
  const Distribution exact = Distribution::weighted(std::move(sums));
  return Distribution::weighted(thinned({exact.outcomes().begin(), exact.outcomes().end()}));
}

Distribution sum_of_draws(const Distribution& count, const Distribution& item) {
  if (item.is_constant()) {
    std::vector<Outcome> products;
    for (const Outcome& n : count.outcomes()) products.push_back({n.value * item.mean(), n.probability});
    return Distribution::weighted(std::move(products));
  }
  // Every draw multiplies the outcomes; few of each keep a thousand draws affordable.
  constexpr size_t kMostItemOutcomes = 64;
  Distribution step = item;
  while (step.outcomes().size() > kMostItemOutcomes) {
    std::vector<Outcome> halved;
    for (size_t i = 0; i < step.outcomes().size(); i += 2) {
      const Outcome& x = step.outcomes()[i];
      const Outcome& y = step.outcomes()[std::min(i + 1, step.outcomes().size() - 1)];
      const double p = i + 1 < step.outcomes().size() ? x.probability + y.probability : x.probability;
      const double mean = i + 1 < step.outcomes().size() ? (x.probability * x.value + y.probability * y.value) / p : x.value;
      halved.push_back({mean, p});
    }
    step = Distribution::weighted(std::move(halved));
  }
  std::vector<Outcome> mixture;
  Distribution drawn = Distribution::constant(0);
  double draws = 0;
  for (const Outcome& n : count.outcomes()) {
    for (; draws < n.value; ++draws) drawn = sum(drawn, step);
    for (const Outcome& total : drawn.outcomes()) mixture.push_back({total.value, total.probability * n.probability});
  }
  const Distribution exact = Distribution::weighted(std::move(mixture));
  return Distribution::weighted(thinned({exact.outcomes().begin(), exact.outcomes().end()}));
}

namespace {

/// Reads one distribution value; complains and returns the range's minimum when it does not fit.
double read_value(const Json& value, const std::string& path, DistributionRange range, Fields& fields) {
  const bool is_fitting = value.is_number() && std::isfinite(value.get<double>()) && value.get<double>() >= range.min &&
                          value.get<double>() <= range.max && (!range.is_whole || value.get<double>() == std::floor(value.get<double>()));
  if (!is_fitting) {
    fields.findings().add(path, fmt::format("is {}, a {}number from {} to {} is needed", describe_value(value),
                                            range.is_whole ? "whole " : "", range.min, range.max));
    return range.min;
  }
  return value.get<double>();
}

}  // namespace

Distribution read_distribution(Fields& fields, std::string_view key, DistributionRange range) {
  const Distribution harmless = Distribution::constant(range.min);
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
