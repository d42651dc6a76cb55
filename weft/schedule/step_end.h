#pragma once

#include "weft/schedule/schedule.h"

namespace weft {

/// Adds what a training step ends with: REDUCE_GRAD of each stage right after the action that completes its weight
/// gradients, so that it can overlap with what follows; at the end of every row ER of the rank's encoders, UPDATE of
/// its stages in the order of their reductions, and EU of the encoders. An encoder's last gradient comes at the end of
/// its rows, and its data-parallel ranks may lie in several: at the end all have the same order.
Schedule with_step_end(Schedule schedule);

}  // namespace weft
