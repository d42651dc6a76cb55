#pragma once

#include <algorithm>

#include "weft/search/enumerate.h"
#include "weft/search/fluid_bound.h"
#include "weft/search/plan_beside.h"

namespace weft {

/// A combination of encoder choices in a frame, and what the encoders beside the pipeline add to it.
struct Combination {
  EncoderIndices choices{};
  BesideGib beside;
  double first_ms = 0;   ///< what the pipeline waits for, but not all of its ranks do
  double before_ms = 0;  ///< what runs on all ranks before the pipeline
  double after_ms = 0;   ///< and after it
  double within_ms = 0;  ///< what runs on all its ranks while it does
  double partly_ms = 0;  ///< what runs on some of its ranks, spread over all
  double own_ms = 0;     ///< what encoders do on ranks of their own

  double least_ms = 0;  ///< no candidate is faster, with the ZeRO stage that is best

  /// With a pipeline that takes at least so long, keeps its busiest rank busy for so long, and all ranks on average.
  double bound_ms(double pipeline_ms, double busy_ms, double even_ms) const {
    const double within = std::max(busy_ms, even_ms + partly_ms) + within_ms;
    return std::max(own_ms, after_ms + std::max(std::max(before_ms, first_ms) + pipeline_ms, before_ms + within));
  }

  /// Adds an encoder beside a pipeline of `pp` ranks.
  void add(const EncoderChoice& choice, const EncoderWork& work, int64_t pp);
};

}  // namespace weft
