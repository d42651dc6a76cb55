#pragma once

#include "weft/plan/plan.h"

namespace weft {

/// What some device holds at least, in GiB, however a plan divides the model among a cluster's devices: the even share
/// of one copy of weights, gradients and optimizer states. `problem` is plan_without_settings'.
double least_states_gib(const Plan& problem);

/// Whether that alone is more than a device has.
bool exceeds_all_devices(const Plan& problem);

}  // namespace weft
