#pragma once

#include <optional>

#include "weft/plan/plan.h"
#include "weft/schedule/schedule.h"

namespace weft {

/// The row of the plan's schedule that a rank runs: its pipeline rank's, or that of an encoder's stage where the llm is
/// elsewhere; nothing for an idle rank. The plan must be legal, and the schedule its own (schedule_of).
std::optional<int32_t> row_of_rank(const Plan& plan, const Schedule& schedule, int64_t rank);

/// What a row's order says of its backwards.
struct RowBackwards {
  bool are_split = false;                ///< backwards are I and W
  std::vector<int32_t> last_microbatch;  ///< by stage: whose weight gradients come last; −1 for stages elsewhere

  bool is_last(int32_t stage, int32_t microbatch) const {
    return last_microbatch[static_cast<size_t>(stage)] == microbatch;
  }
};
RowBackwards backwards_of_row(const std::vector<Action>& row, size_t num_stages);

}  // namespace weft
