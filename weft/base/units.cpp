#include "weft/base/units.h"

#include <array>
#include <cmath>

#include <fmt/format.h>

namespace weft {
namespace {

/// Three significant digits without an exponent: 1.23, 12.3, 123, 1234.
std::string three_digits(double value) {
  const int decimals = value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  return fmt::format("{:.{}f}", value, decimals);
}

template <size_t N>
std::string scaled(double value, double base, const std::array<const char*, N>& prefixes, const std::string& unit) {
  size_t step = 0;
  // 999.5 would print as 1000: it belongs to the next prefix.
  while (step + 1 < N && value >= base - 0.5) {
    value /= base;
    ++step;
  }
  if (step == 0 && value == std::floor(value)) return fmt::format("{:.0f} {}{}", value, prefixes[0], unit);
  return fmt::format("{} {}{}", three_digits(value), prefixes[step], unit);
}

}  // namespace

std::string with_prefix(double value, const std::string& unit) {
  return scaled(value, 1000.0, std::array{"", "k", "M", "G", "T", "P", "E", "Z", "Y"}, unit);
}

std::string format_bytes(double bytes) {
  return scaled(bytes, 1024.0, std::array{"", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"}, "B");
}

std::string format_percent(double share) {
  return three_digits(share * 100.0) + " %";
}

}  // namespace weft
