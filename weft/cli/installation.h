#pragma once

#include <filesystem>

#include "weft/spec/scenario.h"

namespace weft {

/// Where the program's own files are, found from where the program itself is: a build folder in the source tree, or
/// bin/ of an installation. WEFT_SCENARIOS overrides the folder of named scenarios.
Scenarios find_scenarios();
std::filesystem::path find_runtime_library();

}  // namespace weft
