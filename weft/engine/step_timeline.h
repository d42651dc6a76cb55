#pragma once

#include <vector>

#include "weft/comm/group.h"
#include "weft/schedule/timeline.h"

namespace weft {

/// The events of all ranks of a group, in its order, from the first one's start; on the group's first rank, elsewhere
/// nothing. `zero_ms` is what this rank's clock showed when all began. All ranks call it alike.
Timeline gather_timeline(Group& group, const std::vector<TimelineEvent>& events, double zero_ms);

}  // namespace weft
