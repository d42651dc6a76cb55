#include "weft/measure/median.h"

#include <algorithm>
#include <cmath>

#include "weft/base/check.h"

namespace weft {
namespace {

double middle(const std::vector<double>& sorted) {
  const size_t half = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

/// How many of n sorted values lie below a 95 % interval of the median, and as many above: of a fair coin's n throws
/// fewer than that many heads come in at most 2.5 % of all cases.
size_t values_outside(size_t n) {
  double probability = std::pow(0.5, static_cast<double>(n)), sum = 0;
  if (probability == 0) {  // thousands of runs, where the binomial is normal
    const double width = 0.98 * std::sqrt(static_cast<double>(n));
    return static_cast<size_t>(std::max(0.0, static_cast<double>(n) / 2 - width));
  }
  for (size_t heads = 0; heads <= n; ++heads) {
    sum += probability;
    if (sum > 0.025) return heads;
    probability *= static_cast<double>(n - heads) / static_cast<double>(heads + 1);
  }
  return 0;
}

}  // namespace

double median_of(std::vector<double> values) {
  WEFT_CHECK(!values.empty(), "a median of nothing");
  std::sort(values.begin(), values.end());
  return middle(values);
}

MedianEstimate estimate_median(std::vector<double> values) {
  WEFT_CHECK(!values.empty(), "a median of nothing");
  std::sort(values.begin(), values.end());
  MedianEstimate estimate{.median = middle(values)};
  // With k values outside on each side, the interval goes from the k-th to the k-th last; k is 0 below six values.
  const size_t outside = std::max<size_t>(values_outside(values.size()), 1) - 1;
  const double half_width = (values[values.size() - 1 - outside] - values[outside]) / 2;
  estimate.sureness = {.runs = std::ssize(values),
                       .spread_percent = estimate.median > 0 ? half_width / estimate.median * 100 : 0};
  std::vector<double> deviations;
  for (const double value : values) deviations.push_back(std::abs(value - estimate.median));
  // Five times the usual distance from the median, and more than a tenth of it.
  const double far = std::max(5 * median_of(std::move(deviations)), 0.1 * estimate.median);
  estimate.outliers =
      std::count_if(values.begin(), values.end(), [&](double value) { return value - estimate.median > far; });
  return estimate;
}

bool StopRule::is_enough(const std::vector<double>& values, double elapsed_ms) const {
  if (values.empty()) return false;
  if (elapsed_ms >= time_limit_ms) return true;
  if (std::ssize(values) < least_runs) return false;
  return estimate_median(values).sureness.spread_percent <= spread_percent;
}

}  // namespace weft
