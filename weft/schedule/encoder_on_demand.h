#pragma once

#include <span>

#include "weft/schedule/schedule.h"

namespace weft {

/// Puts EF of some of the schedule's encoders right before the F of the entry stage that first reads the macro batch,
/// and EB right after the B or I that makes the last of its gradients: on all ranks of the encoder, where they stand at
/// that moment of a joint run of the pipeline with equal times. The rows hold the pipeline's actions alone.
void add_on_demand(Schedule& schedule, std::span<const int32_t> encoders);

}  // namespace weft
