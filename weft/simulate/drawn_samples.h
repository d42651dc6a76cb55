#pragma once

#include <deque>
#include <vector>

#include "weft/plan/plan.h"
#include "weft/spec/draw_batch.h"

namespace weft {

/// A batch drawn from a plan's workload with its seed. All plans of one model, workload and seed have the same.
std::vector<SampleLoad> drawn_batch(const Plan& plan, int64_t index);

/// Such batches, each drawn once and kept.
class DrawnSamples {
 public:
  /// The plan must outlive it.
  explicit DrawnSamples(const Plan& plan) : plan_(plan) {}

  /// In the order in which they were drawn. Valid as long as this is.
  const std::vector<SampleLoad>& batch(int64_t index);

 private:
  const Plan& plan_;
  std::deque<std::vector<SampleLoad>> batches_;
};

}  // namespace weft
