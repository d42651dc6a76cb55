#pragma once

#include <compare>
#include <string>
#include <vector>

#include "weft/search/enumerate.h"

namespace weft {

/// How much a plan asks of those who run it. Less is simpler; the members are compared in this order.
struct Simplicity {
  /// Of parallelism besides dp: tp, cp, ep, pp, several chunks, encoders beside the pipeline, samples reassigned.
  int64_t kinds = 0;
  int64_t cp = 1;             ///< ranks that share a sample
  int64_t zero = 0;           ///< the ZeRO stage
  bool lacks_export = false;  ///< no other system has settings for it
  int64_t extras = 0;         ///< what else is out of the ordinary

  auto operator<=>(const Simplicity&) const = default;  // NOLINT(modernize-use-nullptr)
};

/// Of a candidate of a model with that many encoders, as if some system could express it.
Simplicity simplicity_of(const Candidate& candidate, size_t num_encoders);

/// No candidate with these degrees is simpler, whatever its schedule and encoders.
Simplicity least_simplicity(const Candidate& degrees, const PlanSpace& space);
/// The same where encoders are chosen, too, and ZeRO stages are listed.
Simplicity least_simplicity(const Candidate& candidate, const FrameChoices& choices, size_t num_encoders);

/// What a candidate does without, or has less of, than another: "needs no context parallelism", "ZeRO 1 instead of 3".
std::vector<std::string> what_is_simpler(const Candidate& simple, const Candidate& other, size_t num_encoders);

}  // namespace weft
