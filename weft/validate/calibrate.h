#pragma once

#include <functional>
#include <span>
#include <vector>

#include "weft/validate/training_run.h"

namespace weft {

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
/// weighing less, together with how unusual the parameters are. Starts from the defaults, whatever the cluster's file
/// says, so that calibrating twice gives the same. Deterministic.
Efficiency calibrate(const std::vector<WeightedRun>& runs);

/// Tables of different lengths count the same as a whole.
std::vector<WeightedRun> weighted(const std::vector<const std::vector<PreparedRun>*>& tables);

}  // namespace weft
