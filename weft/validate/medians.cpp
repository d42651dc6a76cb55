#include "weft/validate/medians.h"

#include <algorithm>
#include <cmath>

namespace weft {

double median_of(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

double median_error(std::vector<double> values) {
  if (values.size() < 2) return 0;
  std::sort(values.begin(), values.end());
  const auto count = static_cast<double>(values.size());
  // The number of values below the median is binomial: half of them, give or take 1.96 · √count / 2.
  const auto below = static_cast<int64_t>(std::floor((count - 1.96 * std::sqrt(count)) / 2));
  const auto low = static_cast<size_t>(std::max<int64_t>(0, below - 1));
  return (values[values.size() - 1 - low] - values[low]) / 2;
}

}  // namespace weft
