#pragma once

#include <array>
#include <vector>

#include "weft/search/combination.h"
#include "weft/search/fill_orders.h"
#include "weft/search/fluid_bound.h"
#include "weft/search/schedule_bounds.h"

namespace weft {

/// A pipeline with some encoders inline, as a relaxation of all its placements.
struct FluidPipeline {
  /// By FrameChoices::zeros, then by OpenFrame::placements; empty where no combination has these encoders inline.
  std::vector<std::vector<FluidChain>> by_zero;
  // Of one microbatch, with the ZeRO stage that is best.
  double least_busy_ms = 0;  ///< on the busiest rank
  double least_even_ms = 0;  ///< spread over all ranks
};

/// A frame whose candidates are looked at: what it leaves open, and what its candidates share.
struct OpenFrame {
  Candidate degrees;
  FrameChoices choices;
  std::vector<Placement> placements;      ///< of its schedules
  std::vector<Combination> combinations;  ///< by least_ms
  std::array<FluidPipeline, kMostEncoderSets> fluids;
  ScheduleBounds bounds;
  FillOrders orders;

  /// Candidates of one combination: every schedule with every ZeRO stage.
  int64_t num_per_combination() const { return static_cast<int64_t>(choices.schedules.size() * choices.zeros.size()); }
  const FluidChain& fluid_of(const Candidate& c, const std::vector<FluidChain>& by_placement) const;
  Candidate candidate_of(const Combination& combination) const;
};

OpenFrame open_frame(Workbench& bench, const Candidate& degrees);

}  // namespace weft
