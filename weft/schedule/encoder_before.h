#pragma once

#include <span>
#include <vector>

#include "weft/schedule/schedule.h"

namespace weft {

/// The EF, or EB, of every macro batch in order.
std::vector<Action> all_macro_batches(ActionKind kind, int32_t encoder, int32_t num_macro_batches);

/// Puts all EF of some of the schedule's encoders in front of what their ranks do, encoder by encoder, and all EB
/// behind it.
void add_before(Schedule& schedule, std::span<const int32_t> encoders);

}  // namespace weft
