#include "weft/simulate/step_spread.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

namespace weft {
namespace {

/// Between the two nearest of sorted values.
double quantile(const std::vector<double>& sorted, double share) {
  const double place = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(place);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (place - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

/// Student's, two-sided, 95 %: by degrees of freedom.
constexpr std::array kFactors = {12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23,
                                 2.20,  2.18, 2.16, 2.14, 2.13, 2.12, 2.11, 2.10, 2.09, 2.09};

}  // namespace

double error_of_mean(double deviation, size_t count) {
  if (deviation == 0) return 0;
  if (count < 2) return std::numeric_limits<double>::infinity();
  const double factor = count - 2 < kFactors.size() ? kFactors[count - 2] : 2.0;
  return factor * deviation / std::sqrt(static_cast<double>(count));
}

StepSpread spread_of(std::vector<double> steps_ms) {
  StepSpread spread;
  if (steps_ms.empty()) return spread;
  const auto count = static_cast<double>(steps_ms.size());
  spread.mean_ms = std::accumulate(steps_ms.begin(), steps_ms.end(), 0.0) / count;
  double squares = 0;
  for (const double step : steps_ms) squares += (step - spread.mean_ms) * (step - spread.mean_ms);
  if (steps_ms.size() > 1) spread.deviation_ms = std::sqrt(squares / (count - 1));
  spread.error_ms = steps_ms.size() > 1 ? error_of_mean(spread.deviation_ms, steps_ms.size()) : 0;
  std::sort(steps_ms.begin(), steps_ms.end());
  spread.shortest_ms = steps_ms.front();
  spread.p10_ms = quantile(steps_ms, 0.1);
  spread.p90_ms = quantile(steps_ms, 0.9);
  spread.longest_ms = steps_ms.back();
  return spread;
}

}  // namespace weft
