#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "weft/base/result.h"
#include "weft/schedule/row_patterns.h"
#include "weft/schedule/schedule.h"

namespace weft {

/// The pipeline schedules that Weft can make.
enum class ScheduleName { kGpipe, k1f1b, kInterleaved1f1b, kZbH1, kZbV };

/// All that is particular to a schedule.
struct ScheduleKind {
  ScheduleName id;
  std::string name;
  void (*fill)(const PipelineShape& shape, ScheduleRows& rows);  ///< the order of its actions
  Placement placement = Placement::kLoop;
  int64_t fewest_chunks = 1;  ///< a rank
  int64_t most_chunks = 1;
  bool splits_backward = false;  ///< into input gradients and weight gradients
  bool is_usual = false;         ///< what pipelines run unless there is a reason for another one
};

/// More chunks than anybody has layers for.
inline constexpr int64_t kMostVpp = 1'024;

/// All of them, in the order of the enum.
std::span<const ScheduleKind> schedule_kinds();
const ScheduleKind& kind_of(ScheduleName name);

/// How many chunks a rank has where nobody says: those of a schedule that leaves no choice, else one.
int64_t usual_chunks(ScheduleName name);
/// The usual schedule of ranks with this number of chunks.
ScheduleName usual_schedule(int64_t chunks);

std::span<const std::string> schedule_names();
const std::string& name_of(ScheduleName name);
Result<ScheduleName> parse_schedule_name(const std::string& name);

}  // namespace weft
