#pragma once

#include <cstdint>
#include <string>

namespace weft {

inline constexpr double kKiB = 1024.0;
inline constexpr double kMiB = 1024.0 * kKiB;
inline constexpr double kGiB = 1024.0 * kMiB;

/// "12.4 TFLOP": a number with the largest decimal prefix that leaves at least 1, to three significant digits.
std::string with_prefix(double value, const std::string& unit);

/// "1.66 MiB": bytes with a binary prefix.
std::string format_bytes(double bytes);

/// "0.95 %" of a share between 0 and 1.
std::string format_percent(double share);

}  // namespace weft
