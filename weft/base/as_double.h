#pragma once

#include <cstdint>

namespace weft {

/// A count in a formula. (Counts here are far below 2^53, so nothing is lost.)
constexpr double as_double(int64_t value) {
  return static_cast<double>(value);
}

}  // namespace weft
