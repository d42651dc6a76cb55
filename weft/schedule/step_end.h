#pragma once

#include "weft/schedule/schedule.h"

namespace weft {

/// Adds what a training step ends with: REDUCE_GRAD of each stage right after the action that completes its weight
/// gradients, so that it can overlap with what follows, and at the end of every row UPDATE of the rank's stages, in
/// that order.
Schedule with_step_end(Schedule schedule);

}  // namespace weft
