#pragma once

#include <vector>

#include "weft/search/candidate.h"
#include "weft/search/plan_space.h"

namespace weft {

/// The degrees, micro-batches and orders of a space for a problem: candidates with schedule, ZeRO stage and encoders
/// still at their defaults.
std::vector<Candidate> enumerate_degrees(const Plan& problem, const PlanSpace& space);

/// The schedules, ZeRO stages and encoder choices for one of them.
std::vector<Candidate> enumerate_choices(const Candidate& degrees, const Plan& problem, const PlanSpace& space);

}  // namespace weft
