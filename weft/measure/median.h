#pragma once

#include <cstdint>
#include <vector>

#include "weft/base/median.h"
#include "weft/profile/profile.h"

namespace weft {

/// A median and how well it is known.
struct MedianEstimate {
  double median = 0;
  Sureness sureness;
  int64_t outliers = 0;  ///< runs that took far longer than the others: something else was running
};

/// Of times that were measured, at least one.
MedianEstimate estimate_median(const std::vector<double>& values);

/// When a time is known well enough.
struct StopRule {
  double spread_percent = 1.5;
  int64_t least_runs = 7;
  double time_limit_ms = 4000;  ///< of a shape; reached, what is there must do

  bool is_enough(const std::vector<double>& values, double elapsed_ms) const;
};

}  // namespace weft
