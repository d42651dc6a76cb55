#pragma once

#include <functional>
#include <vector>

namespace weft {

/// A small least-squares problem: residuals of a few parameters, each of which is also pulled to where it starts.
/// Residuals beyond 1 count less and less than their square (soft L1).
struct LeastSquares {
  std::vector<double> start;
  std::vector<double> low;  ///< bounds
  std::vector<double> high;
  std::vector<double> deviation;  ///< how far from its start a parameter lies for the cost of 1
  size_t num_residuals = 0;
  std::function<void(const std::vector<double>& at, std::vector<double>& out)> residuals;
};

/// The parameters where the cost is least, by damped Gauss-Newton steps (Levenberg-Marquardt) with numeric derivatives.
std::vector<double> solve(const LeastSquares& problem);

}  // namespace weft
