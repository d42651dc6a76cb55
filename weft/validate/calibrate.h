#pragma once

#include <functional>
#include <span>
#include <vector>

#include "weft/validate/training_run.h"

namespace weft {

/// Runs scatter by about this share whatever the model says: it sets how much they count against the defaults.
inline constexpr double kRunScatter = 0.05;

/// What calibration knows before it has seen a run: the defaults, with operators that are one kernel each. What they
/// are really made of, a table of step times cannot tell from how long a kernel takes.
Efficiency calibration_start();

/// A parameter that calibration fits, and how far from its default it may reasonably be: one standard deviation is this
/// factor.
struct FittedParameter {
  double Efficiency::*value;
  double factor;
};
/// Fewer than 15, each of them physical. A parameter without influence on the runs stays at its default.
std::span<const FittedParameter> fitted_parameters();

/// Runs and how much each counts.
struct WeightedRun {
  const PreparedRun* run = nullptr;
  double weight = 1;
};

/// The efficiency that explains the runs best: least squares of the logarithm of predicted over measured, outliers
/// weighing less, together with how unusual the parameters are. Starts from calibration_start, whatever the cluster's
/// file says, so that calibrating twice gives the same. Deterministic.
Efficiency calibrate(const std::vector<WeightedRun>& runs);

/// Tables of different lengths count the same as a whole.
std::vector<WeightedRun> weighted(const std::vector<const std::vector<PreparedRun>*>& tables);

}  // namespace weft
