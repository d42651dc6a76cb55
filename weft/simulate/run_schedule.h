#pragma once

#include <vector>

#include "weft/base/result.h"
#include "weft/cost/pipeline_costs.h"
#include "weft/schedule/schedule.h"
#include "weft/schedule/timeline.h"

namespace weft {

/// What one encoder came to.
struct EncoderRun {
  double busy_ms = 0;                   ///< summed over its ranks
  int32_t peak_live_macro_batches = 0;  ///< on any of its ranks; see ScheduledEncoder::live_macro_batches
};

/// What a simulated step came to.
struct ScheduleRun {
  double makespan_ms = 0;
  double bubble_fraction = 0;           ///< idle share of all ranks' compute streams until the makespan
  std::vector<double> busy_ms;          ///< of each rank's compute stream
  std::vector<double> end_ms;           ///< when each rank's compute stream ends
  std::vector<int32_t> peak_in_flight;  ///< per rank: most (stage, microbatch) pairs between their F and their B, or W
  std::vector<EncoderRun> encoders;
};

/// Runs a lowered schedule: each rank's compute stream takes its actions in order; a transfer leaves when its tensor is
/// made, keeps its channel for p2p_busy_ms and arrives p2p_ms later, and the action that reads it waits for it;
/// gradient reductions have a stream of their own, and a stage's update waits for its reduction and for those of the
/// rank's encoders. Deterministic: streams
/// and channels are first in, first out. An encoder's action starts on all ranks of its group together, when they are
/// free and its inputs have arrived. The rows must be valid (find_problem). Writes every event to `timeline` when one
/// is given.
ScheduleRun run_schedule(const Schedule& lowered, const PipelineCosts& costs, Timeline* timeline = nullptr);

}  // namespace weft
