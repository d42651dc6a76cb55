#pragma once

#include "weft/meaning/step_load.h"
#include "weft/meaning/traffic_writer.h"

namespace weft {

/// The rows of an encoder beside the pipeline on their way to the llm, and their gradients back.
void add_bridge_traffic(const Plan& plan, const StepLoad& load, size_t encoder, int64_t rank, TrafficWriter& writer);

}  // namespace weft
