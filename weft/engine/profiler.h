#pragma once

#include "weft/engine/profile_request.h"

namespace weft {

/// Looks at this machine: its device's name, memory and rates, with so many ranks busy.
Result<MachineReport> look_at_machine(const MachineRequest& request);

/// Measures what a profile lacks. The report is for the process of rank 0; an error without words is shown by another.
Result<std::optional<ProfileReport>> measure_profile(const ProfileRequest& request);

}  // namespace weft
