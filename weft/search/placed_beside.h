#pragma once

#include <vector>

#include "weft/search/plan_stages.h"

namespace weft {

/// What is known of the placements of one pipeline, one stage a rank, from those that were looked for with other
/// encoders beside it. More beside the pipeline makes no placement faster: encoders take memory, keep ranks busy behind
/// the pipeline, and add to updates.
class PlacedBeside {
 public:
  /// No placement with this beside the pipeline is faster, as what was found with no more beside it shows.
  double least_ms(const PlanStages::Beside& beside) const;
  /// With this beside the pipeline no placement is faster than `least_ms`, which is infinite where nothing fits.
  void add(const PlanStages::Beside& beside, double least_ms);

 private:
  struct Known {
    PlanStages::Beside beside;
    double least_ms;
  };
  std::vector<Known> known_;  // none says what another does
};

}  // namespace weft
