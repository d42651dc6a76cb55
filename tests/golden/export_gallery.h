#pragma once

#include <string>

#include "tests/golden/plan_gallery.h"

namespace weft {

/// What the plan becomes for every system that plans are exported to: the files, or why not. Plans of the gallery were
/// never simulated; they are given a step of one second.
std::string exports_of(const NamedPlan& named);

}  // namespace weft
