#pragma once

#include "weft/plan/plan.h"

namespace weft {

/// How many neighbours along cp exchange rows for heads where nobody says: as many as lie on one node and have a head
/// each. A ring, whose messages hide behind computation, is what crosses nodes then. It divides cp. 1 where the
/// module's ranks and degrees do not fit each other.
int64_t default_ulysses(const Plan& plan, const ModulePlan& module);

}  // namespace weft
