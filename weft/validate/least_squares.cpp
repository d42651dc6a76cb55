#include "weft/validate/least_squares.h"

#include <algorithm>
#include <cmath>

namespace weft {
namespace {

using Vector = std::vector<double>;
using Matrix = std::vector<Vector>;

/// Solves a·x = b for a symmetric positive definite matrix by Cholesky's decomposition.
Vector solve_symmetric(Matrix a, Vector b) {
  const size_t n = b.size();
  for (size_t j = 0; j < n; ++j) {
    for (size_t k = 0; k < j; ++k) a[j][j] -= a[j][k] * a[j][k];
    a[j][j] = std::sqrt(a[j][j]);
    for (size_t i = j + 1; i < n; ++i) {
      for (size_t k = 0; k < j; ++k) a[i][j] -= a[i][k] * a[j][k];
      a[i][j] /= a[j][j];
    }
  }
  for (size_t i = 0; i < n; ++i) {
    for (size_t k = 0; k < i; ++k) b[i] -= a[i][k] * b[k];
    b[i] /= a[i][i];
  }
  for (size_t i = n; i-- > 0;) {
    for (size_t k = i + 1; k < n; ++k) b[i] -= a[k][i] * b[k];
    b[i] /= a[i][i];
  }
  return b;
}

class Solver {
 public:
  explicit Solver(const LeastSquares& problem) : problem_(problem), num_parameters_(problem.start.size()) {}

  Vector run() {
    constexpr int kMostSteps = 60;
    constexpr double kSmallestGain = 1e-7;
    Vector at = problem_.start;
    Vector residuals = evaluate(at);
    double cost = cost_of(at, residuals);
    double damping = 1e-2;
    for (int step = 0; step < kMostSteps; ++step) {
      linearise(at, residuals);
      bool has_improved = false;
      for (int attempt = 0; attempt < 8 && !has_improved; ++attempt) {
        const Vector next = stepped(at, damping);
        const Vector next_residuals = evaluate(next);
        const double next_cost = cost_of(next, next_residuals);
        if (next_cost < cost) {
          has_improved = cost - next_cost > kSmallestGain * cost;
          at = next;
          residuals = next_residuals;
          cost = next_cost;
          damping = std::max(1e-6, damping / 4);
          if (!has_improved) return at;
        } else {
          damping *= 5;
        }
      }
      if (!has_improved) return at;
    }
    return at;
  }

 private:
  Vector evaluate(const Vector& at) const {
    Vector out(problem_.num_residuals);
    problem_.residuals(at, out);
    return out;
  }

  double pull(const Vector& at, size_t i) const { return (at[i] - problem_.start[i]) / problem_.deviation[i]; }

  double cost_of(const Vector& at, const Vector& residuals) const {
    double cost = 0;
    for (const double r : residuals) cost += 2 * (std::sqrt(1 + r * r) - 1);
    for (size_t i = 0; i < num_parameters_; ++i) cost += pull(at, i) * pull(at, i);
    return cost;
  }

  /// The normal equations around a point, residuals weighted as soft L1 weighs them there.
  void linearise(const Vector& at, const Vector& residuals) {
    constexpr double kStep = 1e-4;
    Matrix jacobian;
    for (size_t i = 0; i < num_parameters_; ++i) {
      Vector moved = at;
      const double step = at[i] + kStep > problem_.high[i] ? -kStep : kStep;
      moved[i] += step;
      Vector column = evaluate(moved);
      for (size_t r = 0; r < column.size(); ++r) column[r] = (column[r] - residuals[r]) / step;
      jacobian.push_back(std::move(column));
    }
    hessian_.assign(num_parameters_, Vector(num_parameters_, 0.0));
    gradient_.assign(num_parameters_, 0.0);
    for (size_t i = 0; i < num_parameters_; ++i) {
      for (size_t r = 0; r < residuals.size(); ++r) {
        const double weight = 1 / std::sqrt(1 + residuals[r] * residuals[r]);
        gradient_[i] += weight * jacobian[i][r] * residuals[r];
        for (size_t j = 0; j <= i; ++j) hessian_[i][j] += weight * jacobian[i][r] * jacobian[j][r];
      }
      gradient_[i] += pull(at, i) / problem_.deviation[i];
      hessian_[i][i] += 1 / (problem_.deviation[i] * problem_.deviation[i]);
      for (size_t j = 0; j < i; ++j) hessian_[j][i] = hessian_[i][j];
    }
  }

  /// Parameters that stand at a bound and would leave it stay there.
  Vector stepped(const Vector& at, double damping) const {
    Matrix matrix = hessian_;
    Vector right = gradient_;
    for (size_t i = 0; i < num_parameters_; ++i) {
      matrix[i][i] *= 1 + damping;
      const bool leaves_low = at[i] <= problem_.low[i] && gradient_[i] > 0;
      const bool leaves_high = at[i] >= problem_.high[i] && gradient_[i] < 0;
      if (!leaves_low && !leaves_high) continue;
      for (size_t j = 0; j < num_parameters_; ++j) matrix[i][j] = matrix[j][i] = i == j ? 1.0 : 0.0;
      right[i] = 0;
    }
    const Vector step = solve_symmetric(std::move(matrix), std::move(right));
    Vector next = at;
    for (size_t i = 0; i < num_parameters_; ++i)
      next[i] = std::clamp(at[i] - step[i], problem_.low[i], problem_.high[i]);
    return next;
  }

  const LeastSquares& problem_;
  size_t num_parameters_;
  Matrix hessian_;
  Vector gradient_;
};

}  // namespace

std::vector<double> solve(const LeastSquares& problem) {
  return Solver(problem).run();
}

}  // namespace weft
