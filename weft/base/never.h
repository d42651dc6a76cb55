#pragma once

#include <limits>

namespace weft {

/// What cannot be done costs this.
inline constexpr double kNever = std::numeric_limits<double>::infinity();

}  // namespace weft
