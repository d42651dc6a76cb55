#pragma once

#include "weft/plan/plan.h"

namespace weft {

/// Of plans that nobody said more of, and of what a profile measures: sums and master weights are fp32, or as wide as
/// what is computed.
inline PrecisionPlan usual_precision(Precision compute) {
  const Precision exact = num_bytes(compute) >= num_bytes(Precision::kFp32) ? compute : Precision::kFp32;
  return {.compute = compute, .master = exact, .reduce = exact};
}

}  // namespace weft
