#pragma once

#include <span>
#include <string>

#include "weft/base/result.h"
#include "weft/schedule/schedule.h"

namespace weft {

/// The pipeline schedules that Weft can make.
enum class ScheduleName { kGpipe, k1f1b, kInterleaved1f1b, kZbH1, kZbV };

/// "gpipe", "1f1b", "interleaved_1f1b", "zb_h1", "zb_v", in the order of the enum.
std::span<const std::string> schedule_names();
const std::string& name_of(ScheduleName name);
Result<ScheduleName> parse_schedule_name(const std::string& name);

struct PipelineShape {
  int64_t pp = 1;
  int64_t vpp = 1;
  int64_t microbatches = 1;

  bool operator==(const PipelineShape&) const = default;
};

Placement placement_of(ScheduleName name);

/// Whether the backward is split into I and W.
bool splits_backward(ScheduleName name);

/// The compute-only schedule. Any number of microbatches from 1; gpipe, 1f1b and zb_h1 have one chunk a rank,
/// interleaved_1f1b at least two, zb_v two. The error names the flag.
Result<Schedule> generate_schedule(ScheduleName name, const PipelineShape& shape);

/// vpp when every stage holds `layers_per_virtual_stage` layers: layers / (pp · layers_per_virtual_stage).
Result<int64_t> virtual_stages(int64_t layers, int64_t pp, int64_t layers_per_virtual_stage);

}  // namespace weft
