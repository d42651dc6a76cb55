#pragma once

#include <vector>

#include "weft/profile/profile.h"

namespace weft {

/// One measurement from several of the same shape, minutes apart: medians of their times. It is no surer than its turns
/// agree. At least one is given.
BlockMeasurement middle_of_turns(const std::vector<BlockMeasurement>& turns);
OperatorMeasurement middle_of_turns(const std::vector<OperatorMeasurement>& turns);

}  // namespace weft
