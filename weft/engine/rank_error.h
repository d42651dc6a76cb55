#pragma once

#include <stdexcept>

#include "weft/base/error.h"

namespace weft {

/// A failure of one rank that the others cannot know of; they end with its message.
class RankError : public std::runtime_error {
 public:
  explicit RankError(const Error& error) : std::runtime_error(error.message()) {}
};

}  // namespace weft
