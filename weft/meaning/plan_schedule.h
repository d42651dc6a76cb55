#pragma once

#include "weft/base/result.h"
#include "weft/plan/plan.h"
#include "weft/schedule/schedule.h"

namespace weft {

/// What one pipeline of the plan does in a step: row r stands for all llm ranks of pipeline rank r, and rows behind
/// those for the stages of encoders with ranks of their own. Encoders that fill bubbles have the order that the plan
/// stores. The error names the plan's field.
Result<Schedule> schedule_of(const Plan& plan);

/// The same as it is simulated and trained: with reductions and updates, and all transfers.
Result<Schedule> playable_schedule(const Plan& plan);

/// The llm's pipeline alone, with the stage in which the llm begins: what the plan's schedule makes of its shape, or
/// the rows that the plan gives.
Result<Schedule> pipeline_schedule(const Plan& plan);

/// The macro batches of an encoder that is not inline, without the rows that run them.
Result<ScheduledEncoder> macro_batches_of(const Plan& plan, const ModulePlan& encoder);

/// How the encoders of the plan (those not inline) interleave with the llm, to be placed: without times.
Result<std::vector<EncoderPlacement>> encoder_placements(const Plan& plan);

/// The rows as a plan stores them, in the first encoder that fills: by row, the texts of its actions.
std::map<int64_t, std::vector<std::string>> stored_rows(const Schedule& schedule);

}  // namespace weft
