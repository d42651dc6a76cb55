#pragma once

#include <array>
#include <vector>

#include "weft/search/deadline.h"
#include "weft/simulate/drawn_samples.h"
#include "weft/simulate/plan_simulator.h"

namespace weft {

/// A plan's steps on drawn batches, with one way of reassigning samples.
struct DrawnPrice {
  Balance balance = Balance::kNone;
  std::vector<double> steps_ms;  ///< by batch
  double mean_ms = 0;
};

/// What a plan must be faster than to be of interest.
struct DrawnLimits {
  double in_order_ms = 0;    ///< without reassigning
  double reassigned_ms = 0;  ///< with it
  Deadline deadline = {};    ///< no batch is begun behind it
};

/// A plan's prices with different ways of reassigning samples.
struct DrawnPrices {
  std::vector<DrawnPrice> found;
  bool is_cut_short = false;  ///< by the deadline: ways that were not priced to the end may be faster
};

/// The plainest first.
inline constexpr std::array kBalancesByPlainness = {Balance::kNone, Balance::kEncoder, Balance::kLlm, Balance::kBoth};

/// Compares plans on batches that all of them share.
class DrawnObjective {
 public:
  /// The simulator is one of the workload's own mean batch. The samples must outlive this.
  DrawnObjective(PlanSimulator simulator, DrawnSamples& samples, std::vector<Balance> balances, int64_t batches)
      : simulator_(std::move(simulator)), samples_(samples), balances_(std::move(balances)), batches_(batches) {}

  /// The plan without reassigning and with the way of it that makes steps shortest, each where it is below its limit;
  /// the second only where it is the faster one. Nothing where the plan does not fit, or is surely no faster than the
  /// limits. The plan's own balance is not read.
  DrawnPrices price(const Plan& plan, const DrawnLimits& limits);

  /// More steps of a plan that was priced, up to so many batches.
  void extend(const Plan& plan, int64_t batches, std::vector<double>& steps_ms);

  int64_t num_priced() const { return num_priced_; }

 private:
  bool is_hopeless(const std::vector<double>& steps_ms, double limit_ms) const;

  PlanSimulator simulator_;
  DrawnSamples& samples_;
  std::vector<Balance> balances_;
  int64_t batches_;
  int64_t num_priced_ = 0;
  DrawnPrice best_;  ///< of all that were priced
};

}  // namespace weft
