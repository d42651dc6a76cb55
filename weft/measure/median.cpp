#include "weft/measure/median.h"

#include <algorithm>
#include <cmath>

#include "weft/base/check.h"

namespace weft {

MedianEstimate estimate_median(const std::vector<double>& values) {
  WEFT_CHECK(!values.empty(), "a median of nothing");
  MedianEstimate estimate{.median = median_of(values)};
  estimate.sureness = {.runs = std::ssize(values),
                       .spread_percent = estimate.median > 0 ? median_error(values) / estimate.median * 100 : 0};
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
