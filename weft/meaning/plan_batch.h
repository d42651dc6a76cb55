#pragma once

#include "weft/meaning/balance.h"
#include "weft/plan/plan.h"

namespace weft {

/// How a plan's modules take a batch in.
BatchShape batch_shape(const Plan& plan);

/// Whose samples the plan reassigns, and what for.
BalancedModules balanced_modules(const Plan& plan);

/// Who takes which samples of a batch. Costs are read where the plan balances.
BatchAssignment assign_batch(const Plan& plan, const BatchCosts& costs);

}  // namespace weft
