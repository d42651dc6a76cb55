#pragma once

#include "weft/meaning/step_load.h"
#include "weft/plan/plan.h"

namespace weft {

/// What a step of a user's program has to do: its samples all have as many rows.
inline StepLoad program_load(const Plan& plan) {
  StepLoad load;
  const int64_t rows = plan.model.numbers.program->rows.rows_per_sample;
  const MicrobatchLoad one{.samples = std::vector<int64_t>(static_cast<size_t>(plan.schedule.mbs), rows)};
  load.llm.assign(static_cast<size_t>(plan.llm().dp),
                  std::vector<MicrobatchLoad>(static_cast<size_t>(plan.schedule.microbatches), one));
  return load;
}

}  // namespace weft
