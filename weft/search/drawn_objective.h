#pragma once

#include <optional>
#include <vector>

#include "weft/simulate/drawn_samples.h"
#include "weft/simulate/plan_simulator.h"

namespace weft {

/// A plan's steps on drawn batches, with the way of reassigning samples that makes them shortest.
struct DrawnPrice {
  Balance balance = Balance::kNone;
  std::vector<double> steps_ms;  ///< by batch
  double mean_ms = 0;
};

/// The plainest first.
inline constexpr std::array kBalancesByPlainness = {Balance::kNone, Balance::kEncoder, Balance::kLlm, Balance::kBoth};

/// Compares plans on batches that all of them share.
class DrawnObjective {
 public:
  /// The simulator is one of the workload's own mean batch. The samples must outlive this.
  DrawnObjective(PlanSimulator simulator, DrawnSamples& samples, std::vector<Balance> balances, int64_t batches)
      : simulator_(std::move(simulator)), samples_(samples), balances_(std::move(balances)), batches_(batches) {}

  /// Nothing where the plan does not fit, or is surely no faster than the limit. The plan's own balance is not read.
  std::optional<DrawnPrice> price(const Plan& plan, double limit_ms);

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
