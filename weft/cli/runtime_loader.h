#pragma once

#include "weft/base/result.h"
#include "weft/engine/runtime_api.h"

namespace weft {

/// Loads the library with the runtime half. Verbs that need no tensors never call this, and so start in milliseconds.
Result<const RuntimeApi*> load_runtime();

}  // namespace weft
