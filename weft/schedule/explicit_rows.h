#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/base/result.h"
#include "weft/schedule/schedule.h"

namespace weft {

/// The name of a schedule that is given row by row instead of made.
inline constexpr std::string_view kExplicitSchedule = "explicit";

/// A pipeline's order of work, given action by action, and what follows from it. A stage lies on the rank whose row
/// runs it; the chunks of a rank are its stages in ascending order. Ranks may have different numbers of them.
struct ExplicitRows {
  Schedule schedule;               ///< compute-only, without encoders
  std::vector<StagePlace> places;  ///< by stage
  std::vector<int64_t> chunks;     ///< by rank
  bool splits_backward = false;    ///< of some stage and microbatch

  bool operator==(const ExplicitRows& other) const { return schedule == other.schedule; }
};

/// Of a schedule without encoders. Transfers, reductions and updates are left out: they follow from the rest.
ExplicitRows explicit_rows(Schedule schedule);

/// One text per rank, actions separated by blanks: "0F0 0F1 0B0 0B1". The error's field is "rows[1], action 3".
Result<ExplicitRows> parse_explicit_rows(std::span<const std::string> rows);
std::vector<std::string> to_texts(const ExplicitRows& rows);

}  // namespace weft
