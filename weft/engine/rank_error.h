#pragma once

#include <stdexcept>

#include "weft/base/error.h"

namespace weft {

/// What helps a training run whose memory ran out.
inline constexpr const char* kMemoryAdvice =
    "Choose a plan with more recomputation, a higher ZeRO stage, more ranks or a smaller mbs; weft check says what it "
    "needs.";

/// The same where ranks share a host's memory and their number does not help.
inline constexpr const char* kHostMemoryAdvice =
    "Choose a smaller model, a smaller mbs or more recomputation (weft plan, weft simulate show the parts), or spread "
    "the "
    "ranks over machines with mpirun.";

/// A failure of one rank that the others cannot know of; they end with its message.
class RankError : public std::runtime_error {
 public:
  explicit RankError(const Error& error) : std::runtime_error(error.message()) {}
};

}  // namespace weft
