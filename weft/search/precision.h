#pragma once

#include <limits>

namespace weft {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Times that differ by less than this share are the same but for rounding; smaller improvements are not looked for.
inline constexpr double kPrecision = 1e-9;

}  // namespace weft
