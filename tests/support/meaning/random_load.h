#pragma once

#include <cstdint>

#include "weft/meaning/step_load.h"
#include "weft/plan/plan.h"

namespace weft {

/// Lengths, media and router choices of one step of a plan. The same seed gives the same ones.
StepLoad random_load(const Plan& plan, uint64_t seed);

}  // namespace weft
