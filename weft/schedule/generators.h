#pragma once

#include "weft/base/result.h"
#include "weft/schedule/schedule_kind.h"

namespace weft {

/// The compute-only schedule. Any number of microbatches from 1, and as many chunks as its kind has. The error
/// names the flag.
Result<Schedule> generate_schedule(ScheduleName name, const PipelineShape& shape);

/// vpp when every stage holds `layers_per_virtual_stage` layers: layers / (pp · layers_per_virtual_stage).
Result<int64_t> virtual_stages(int64_t layers, int64_t pp, int64_t layers_per_virtual_stage);

}  // namespace weft
