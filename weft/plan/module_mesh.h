#pragma once

#include "weft/base/result.h"
#include "weft/mesh/mesh.h"
#include "weft/plan/plan.h"

namespace weft {

/// The mesh of a module: its axes in the plan's order over its ranks. The error names the plan's field.
Result<Mesh> mesh_of(const ModulePlan& module);

}  // namespace weft
