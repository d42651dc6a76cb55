#pragma once

#include "weft/meaning/call_list.h"
#include "weft/meaning/step_load.h"

namespace weft {

/// The rows of an encoder beside the pipeline on their way to the llm, and their gradients back.
void add_bridge_traffic(const Plan& plan, const StepLoad& load, size_t encoder, int64_t rank, CallList& calls);

}  // namespace weft
