#pragma once

#include <chrono>

namespace weft {

/// Of the steady clock, since a moment that does not matter.
inline double now_ms() {
  using Clock = std::chrono::steady_clock;
  return std::chrono::duration<double, std::milli>(Clock::now().time_since_epoch()).count();
}

}  // namespace weft
