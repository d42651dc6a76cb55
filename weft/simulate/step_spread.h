#pragma once

#include <vector>

namespace weft {

/// How the steps of several batches spread.
struct StepSpread {
  double mean_ms = 0;
  double deviation_ms = 0;  ///< of one step
  double shortest_ms = 0;
  double p10_ms = 0;  ///< a tenth of the steps are shorter
  double p90_ms = 0;  ///< a tenth are longer
  double longest_ms = 0;
  double error_ms = 0;  ///< the mean of all batches that there could be lies this near, in 95 of 100 cases
};

StepSpread spread_of(std::vector<double> steps_ms);

/// Of a mean of so many values, in 95 of 100 cases: standard errors with the few degrees of freedom that there are.
double error_of_mean(double deviation, size_t count);

}  // namespace weft
