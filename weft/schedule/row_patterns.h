#pragma once

#include <cstdint>
#include <vector>

#include "weft/schedule/action.h"

namespace weft {

struct PipelineShape {
  int64_t pp = 1;
  int64_t vpp = 1;
  int64_t microbatches = 1;

  bool operator==(const PipelineShape&) const = default;
};

/// The orders of actions that schedules have, one function for each. They fill a row of a schedule for every rank,
/// whose shape is legal.
using ScheduleRows = std::vector<std::vector<Action>>;
void fill_gpipe(const PipelineShape& shape, ScheduleRows& rows);
void fill_1f1b(const PipelineShape& shape, ScheduleRows& rows);
void fill_interleaved_1f1b(const PipelineShape& shape, ScheduleRows& rows);
void fill_zb_h1(const PipelineShape& shape, ScheduleRows& rows);
void fill_zb_v(const PipelineShape& shape, ScheduleRows& rows);

}  // namespace weft
