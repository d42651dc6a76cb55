#pragma once

#include <string>
#include <vector>

#include "weft/pipeline/executor.h"
#include "weft/pipeline/trained_stage.h"

namespace weft {

/// After a step whose loss or gradient is not finite: the module that this begins in. All ranks of the group ask alike.
std::string find_not_finite(const StepOutput& output, const std::vector<TrainedStage*>& stages, Group& everyone);

}  // namespace weft
