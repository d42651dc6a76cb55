#pragma once

#include <vector>

#include "weft/search/candidate.h"
#include "weft/search/plan_space.h"

namespace weft {

/// Candidates of a space that differ from one in a setting: degrees between which a factor moves, micro-batch, ZeRO
/// stage, schedule, or how one encoder is run; in several where one is of use only with another. In an order that is
/// always the same.
std::vector<Candidate> neighbours_of(const Candidate& c, const Plan& problem, const PlanSpace& space);

/// Whether the space allows all settings of a candidate, which fit each other, each by itself: what improving may try.
bool is_allowed(const Candidate& c, const Plan& problem, const PlanSpace& space);

/// Whether the candidate is one of those that a search of the space goes through.
bool is_in(const Candidate& c, const Plan& problem, const PlanSpace& space);

/// Candidates of a space with all degrees and micro-batches that are powers of two of each other, and with the
/// candidate's encoders or with all of them inline: where to begin anew.
std::vector<Candidate> far_from(const Candidate& c, const Plan& problem, const PlanSpace& space);

}  // namespace weft
