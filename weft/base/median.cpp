#include "weft/base/median.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace weft {
namespace {

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
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

double median_error(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  // With k values outside on each side, the interval goes from the k-th to the k-th last; k is 0 below six values.
  const size_t outside = std::max<size_t>(values_outside(values.size()), 1) - 1;
  return (values[values.size() - 1 - outside] - values[outside]) / 2;
}

}  // namespace weft
