#pragma once

#include <vector>

#include "weft/base/json.h"
#include "weft/comm/group.h"
#include "weft/data/sample_source.h"

namespace weft {

/// What any rank had to skip, on all of them: every record once, in order. All call it.
std::vector<SkippedSample> agree_on_skipped(Group& group, const std::vector<SkippedSample>& mine);

/// A line for the run's folder, of a step.
std::string to_line(const SkippedSample& skipped, int64_t step);

}  // namespace weft
