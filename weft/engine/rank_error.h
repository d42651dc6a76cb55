#pragma once

#include <stdexcept>

#include "weft/base/error.h"

namespace weft {

/// What helps a training run whose memory ran out.
inline constexpr const char* kMemoryAdvice =
    "Choose a plan with more recomputation, a higher ZeRO stage, more ranks or a smaller mbs; weft check says what it "
    "needs.";

/// A failure of one rank that the others cannot know of; they end with its message.
class RankError : public std::runtime_error {
 public:
  explicit RankError(const Error& error) : std::runtime_error(error.message()) {}
};

}  // namespace weft
