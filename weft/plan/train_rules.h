#pragma once

#include <filesystem>
#include <vector>

#include "weft/base/fields.h"
#include "weft/plan/plan.h"

namespace weft {

/// The list `trainable` of a plan, or of a training configuration; none where it is not there.
std::vector<TrainRule> read_train_rules(Fields& fields);

/// That of a training configuration alone, whatever else it says.
Result<std::vector<TrainRule>> read_config_rules(const std::filesystem::path& config);

}  // namespace weft
