#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "weft/base/result.h"
#include "weft/schedule/schedule.h"

namespace weft {

/// The pipeline schedules that Weft can make.
enum class ScheduleName { kGpipe, k1f1b, kInterleaved1f1b, kZbH1, kZbV };

/// What is particular to a schedule, besides the order of its actions.
struct ScheduleKind {
  ScheduleName id;
  std::string name;
  Placement placement = Placement::kLoop;
  int64_t fewest_chunks = 1;  ///< a rank
  int64_t most_chunks = 1;
  bool splits_backward = false;  ///< into input gradients and weight gradients
};

/// More chunks than anybody has layers for.
inline constexpr int64_t kMostVpp = 1'024;

/// All of them, in the order of the enum.
std::span<const ScheduleKind> schedule_kinds();
const ScheduleKind& kind_of(ScheduleName name);

/// How many chunks a rank has where nobody says: those of a schedule that leaves no choice, else one.
int64_t usual_chunks(ScheduleName name);

std::span<const std::string> schedule_names();
const std::string& name_of(ScheduleName name);
Result<ScheduleName> parse_schedule_name(const std::string& name);

}  // namespace weft
