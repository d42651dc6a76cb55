#pragma once

#include <optional>
#include <vector>

#include "weft/simulate/drawn_samples.h"
#include "weft/simulate/plan_simulator.h"

namespace weft {

/// What a plan takes, priced as the search prices plans.
struct PlanPrice {
  double step_ms = 0;  ///< the mean step of the drawn batches, or the mean batch's
  std::vector<double> steps_ms = {};
  double excess_gib = 0;  ///< what the fullest rank holds beyond the device's memory

  bool fits() const { return excess_gib <= 0; }
};

/// Prices whole plans of one problem, whatever they are, on the batches that a search compared its own on.
class PlanPricer {
 public:
  /// `batches` are drawn; 0 for the mean batch. The samples must outlive this.
  PlanPricer(PlanSimulator simulator, DrawnSamples& samples, int64_t batches)
      : simulator_(std::move(simulator)), samples_(samples), batches_(batches) {}

  /// Encoders that fill bubbles get their order. Nothing where the plan is not legal, or has more than
  /// `most_excess_gib` too much, or is surely slower than `slack` times `rival`, batch by batch.
  std::optional<PlanPrice> price(Plan& plan, const PlanPrice* rival = nullptr, double slack = 1,
                                 double most_excess_gib = 0);

  int64_t num_priced() const { return num_priced_; }

 private:
  PlanSimulator simulator_;
  DrawnSamples& samples_;
  int64_t batches_;
  int64_t num_priced_ = 0;
};

}  // namespace weft
